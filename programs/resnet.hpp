/// \file
/// ResNet v1 for 32 x 32 images (He et al., 2015) with 6 N + 2 layers, as in the CIFAR-10 tutorial:
/// with biases, and with a projection in the first block of each stage.
#pragma once

#include <lockstep/lockstep.hpp>

namespace resnet {

namespace ls = lockstep;

inline constexpr ls::L2 decay{2e-4f};
template <int Filters, int Kernel, int Stride = 1>
struct Conv : ls::Conv2D<Filters, Kernel, ls::same, ls::strides(Stride), ls::he_normal,
                         ls::kernel_regularizer(decay), ls::bias_regularizer(decay)> {};
struct Norm : ls::BatchNormalization<ls::momentum(0.997), ls::epsilon(1e-5f)> {};
template <int F, int S>
struct Main : ls::Sequential<Conv<F, 3, S>, Norm, ls::ReLU, Conv<F, 3>, Norm> {};
template <int F, int S>
struct Project : ls::Sequential<Conv<F, 1, S>, Norm> {};
template <int F, int S>
struct First : ls::Sequential<ls::Residual<Main<F, S>, Project<F, S>>, ls::ReLU> {};
template <int F>
struct Next : ls::Sequential<ls::Residual<Main<F, 1>>, ls::ReLU> {};
template <int F, int S, int N>
struct Stage : ls::Sequential<First<F, S>, ls::Repeat<N - 1, Next<F>>> {};
template <int N>
struct ResNet
    : ls::Sequential<ls::Input<32, 32, 3>, Conv<16, 3>, Norm, ls::ReLU,  //
                     Stage<16, 1, N>, Stage<32, 2, N>, Stage<64, 2, N>,  //
                     ls::GlobalAveragePooling2D,                         //
                     ls::Dense<10, ls::kernel_regularizer(decay), ls::bias_regularizer(decay)>> {};

}  // namespace resnet

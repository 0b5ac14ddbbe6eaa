/// \file
/// Explicit instantiations of the kernels of a device D, so that the compiled form builds each one
/// once, in the source file of its component (see core/config.hpp). The device's umbrella header
/// declares them after its kernels, and its part of `impl/` defines them:
/// \code
///   namespace lockstep {
///   LOCKSTEP_KERNELS(extern template, Cpu)    // user code: declarations only
///   LOCKSTEP_KERNELS(template, Cpu)           // the component's source file: definitions
///   }
/// \endcode
/// Invariant: these lists affect build time only. An op that is not listed still works; each
/// translation unit that uses it instantiates its kernel.
#pragma once

#include <cstdint>

#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/losses/losses.hpp"
#include "lockstep/metrics/metrics.hpp"
#include "lockstep/optimizers/optimizers.hpp"

// One kernel each: both passes of a layer, or the single `run` of a loss, metric or update.
#define LOCKSTEP_PASSES(how, D, ...) how struct detail::KernelCalls<__VA_ARGS__, D>;
#define LOCKSTEP_LOSS(how, D, ...) \
  how struct detail::KernelRun<__VA_ARGS__, D, LossIo<D, __VA_ARGS__::target_type>>;
#define LOCKSTEP_METRIC(how, D, ...) \
  how struct detail::KernelRun<__VA_ARGS__, D, MetricIo<D, __VA_ARGS__::target_type>>;
#define LOCKSTEP_UPDATE(how, D, ...) how struct detail::KernelRun<__VA_ARGS__, D, UpdateIo<D>>;

#define LOCKSTEP_LAYER_KERNELS(how, D)                          \
  LOCKSTEP_PASSES(how, D, AddOp)                                \
  LOCKSTEP_PASSES(how, D, AverageOp)                            \
  LOCKSTEP_PASSES(how, D, AveragePooling2DOp)                   \
  LOCKSTEP_PASSES(how, D, AveragePooling3DOp)                   \
  LOCKSTEP_PASSES(how, D, BatchNormalizationOp)                 \
  LOCKSTEP_PASSES(how, D, CenterCropOp)                         \
  LOCKSTEP_PASSES(how, D, ConcatenateOp)                        \
  LOCKSTEP_PASSES(how, D, Conv2DOp)                             \
  LOCKSTEP_PASSES(how, D, Conv2DTransposeOp)                    \
  LOCKSTEP_PASSES(how, D, Conv3DOp)                             \
  LOCKSTEP_PASSES(how, D, Cropping2DOp)                         \
  LOCKSTEP_PASSES(how, D, DenseOp)                              \
  LOCKSTEP_PASSES(how, D, DepthToSpaceOp)                       \
  LOCKSTEP_PASSES(how, D, DepthwiseConv2DOp)                    \
  LOCKSTEP_PASSES(how, D, DotOp)                                \
  LOCKSTEP_PASSES(how, D, DropoutOp)                            \
  LOCKSTEP_PASSES(how, D, ELUOp)                                \
  LOCKSTEP_PASSES(how, D, EmbeddingOp)                          \
  LOCKSTEP_PASSES(how, D, GELUOp)                               \
  LOCKSTEP_PASSES(how, D, GaussianNoiseOp)                      \
  LOCKSTEP_PASSES(how, D, GlobalAveragePooling2DOp)             \
  LOCKSTEP_PASSES(how, D, GlobalAveragePooling3DOp)             \
  LOCKSTEP_PASSES(how, D, GlobalMaxPooling2DOp)                 \
  LOCKSTEP_PASSES(how, D, GlobalMaxPooling3DOp)                 \
  LOCKSTEP_PASSES(how, D, GroupNormalizationOp)                 \
  LOCKSTEP_PASSES(how, D, GroupedQueryAttentionOp)              \
  LOCKSTEP_PASSES(how, D, LayerNormalizationOp)                 \
  LOCKSTEP_PASSES(how, D, LeakyReLUOp)                          \
  LOCKSTEP_PASSES(how, D, LogSoftmaxOp)                         \
  LOCKSTEP_PASSES(how, D, MaxPooling2DOp)                       \
  LOCKSTEP_PASSES(how, D, MaxPooling3DOp)                       \
  LOCKSTEP_PASSES(how, D, MaximumOp)                            \
  LOCKSTEP_PASSES(how, D, MinimumOp)                            \
  LOCKSTEP_PASSES(how, D, MultiHeadAttentionOp)                 \
  LOCKSTEP_PASSES(how, D, MultiplyOp)                           \
  LOCKSTEP_PASSES(how, D, NormalizationOp)                      \
  LOCKSTEP_PASSES(how, D, PermuteOp)                            \
  LOCKSTEP_PASSES(how, D, PositionEmbeddingOp)                  \
  LOCKSTEP_PASSES(how, D, PReLUOp)                              \
  LOCKSTEP_PASSES(how, D, RandomBrightnessOp)                   \
  LOCKSTEP_PASSES(how, D, RandomContrastOp)                     \
  LOCKSTEP_PASSES(how, D, RandomCropOp)                         \
  LOCKSTEP_PASSES(how, D, RandomCutoutOp)                       \
  LOCKSTEP_PASSES(how, D, RandomFlipOp)                         \
  LOCKSTEP_PASSES(how, D, RandomRotationOp)                     \
  LOCKSTEP_PASSES(how, D, RandomTranslationOp)                  \
  LOCKSTEP_PASSES(how, D, RandomZoomOp)                         \
  LOCKSTEP_PASSES(how, D, ReLUOp)                               \
  LOCKSTEP_PASSES(how, D, ReLU6Op)                              \
  LOCKSTEP_PASSES(how, D, RepeatVectorOp)                       \
  LOCKSTEP_PASSES(how, D, RescalingOp)                          \
  LOCKSTEP_PASSES(how, D, ResizingOp)                           \
  LOCKSTEP_PASSES(how, D, RMSNormalizationOp)                   \
  LOCKSTEP_PASSES(how, D, RowSliceOp)                           \
  LOCKSTEP_PASSES(how, D, SeparableConv2DOp)                    \
  LOCKSTEP_PASSES(how, D, SiLUOp)                               \
  LOCKSTEP_PASSES(how, D, SigmoidOp)                            \
  LOCKSTEP_PASSES(how, D, SliceAxisOp)                          \
  LOCKSTEP_PASSES(how, D, SoftmaxOp)                            \
  LOCKSTEP_PASSES(how, D, SoftplusOp)                           \
  LOCKSTEP_PASSES(how, D, SpaceToDepthOp)                       \
  LOCKSTEP_PASSES(how, D, SpatialDropout2DOp)                   \
  LOCKSTEP_PASSES(how, D, SubtractOp)                           \
  LOCKSTEP_PASSES(how, D, TanhOp)                               \
  LOCKSTEP_PASSES(how, D, UpSampling2DOp)                       \
  LOCKSTEP_PASSES(how, D, ZeroPadding2DOp)                      \
  LOCKSTEP_PASSES(how, D, AlongSteps<AveragePooling2DOp>)       \
  LOCKSTEP_PASSES(how, D, AlongSteps<Conv2DOp>)                 \
  LOCKSTEP_PASSES(how, D, AlongSteps<Cropping2DOp>)             \
  LOCKSTEP_PASSES(how, D, AlongSteps<Conv2DTransposeOp>)        \
  LOCKSTEP_PASSES(how, D, AlongSteps<GlobalAveragePooling2DOp>) \
  LOCKSTEP_PASSES(how, D, AlongSteps<GlobalMaxPooling2DOp>)     \
  LOCKSTEP_PASSES(how, D, AlongSteps<MaxPooling2DOp>)           \
  LOCKSTEP_PASSES(how, D, AlongSteps<UpSampling2DOp>)           \
  LOCKSTEP_PASSES(how, D, AlongSteps<ZeroPadding2DOp>)

#define LOCKSTEP_LOSS_KERNELS(how, D)                              \
  LOCKSTEP_LOSS(how, D, CategoricalCrossentropyOp)                 \
  LOCKSTEP_LOSS(how, D, CosineSimilarityOp)                        \
  LOCKSTEP_LOSS(how, D, ElementwiseLossOp<AbsoluteErrorRule>)      \
  LOCKSTEP_LOSS(how, D, ElementwiseLossOp<BinaryCrossentropyRule>) \
  LOCKSTEP_LOSS(how, D, ElementwiseLossOp<HingeRule>)              \
  LOCKSTEP_LOSS(how, D, ElementwiseLossOp<HuberRule>)              \
  LOCKSTEP_LOSS(how, D, ElementwiseLossOp<LogCoshRule>)            \
  LOCKSTEP_LOSS(how, D, ElementwiseLossOp<PoissonRule>)            \
  LOCKSTEP_LOSS(how, D, KLDivergenceOp)                            \
  LOCKSTEP_LOSS(how, D, MeanSquaredErrorOp)                        \
  LOCKSTEP_LOSS(how, D, SparseCategoricalCrossentropyOp)

#define LOCKSTEP_METRIC_KERNELS(how, D)                                        \
  LOCKSTEP_METRIC(how, D, AUCOp<float>)                                        \
  LOCKSTEP_METRIC(how, D, AUCOp<std::int32_t>)                                 \
  LOCKSTEP_METRIC(how, D, AccuracyOp<float>)                                   \
  LOCKSTEP_METRIC(how, D, AccuracyOp<std::int32_t>)                            \
  LOCKSTEP_METRIC(how, D, BinaryAccuracyOp<float>)                             \
  LOCKSTEP_METRIC(how, D, BinaryAccuracyOp<std::int32_t>)                      \
  LOCKSTEP_METRIC(how, D, BinaryCountsOp<float>)                               \
  LOCKSTEP_METRIC(how, D, BinaryCountsOp<std::int32_t>)                        \
  LOCKSTEP_METRIC(how, D, ConfusionMatrixOp<float>)                            \
  LOCKSTEP_METRIC(how, D, ConfusionMatrixOp<std::int32_t>)                     \
  LOCKSTEP_METRIC(how, D, MeanCosineSimilarityOp)                              \
  LOCKSTEP_METRIC(how, D, MeanOfOp<CategoricalCrossentropyOp>)                 \
  LOCKSTEP_METRIC(how, D, MeanOfOp<ElementwiseLossOp<AbsoluteErrorRule>>)      \
  LOCKSTEP_METRIC(how, D, MeanOfOp<ElementwiseLossOp<BinaryCrossentropyRule>>) \
  LOCKSTEP_METRIC(how, D, MeanOfOp<ElementwiseLossOp<HingeRule>>)              \
  LOCKSTEP_METRIC(how, D, MeanOfOp<ElementwiseLossOp<HuberRule>>)              \
  LOCKSTEP_METRIC(how, D, MeanOfOp<ElementwiseLossOp<LogCoshRule>>)            \
  LOCKSTEP_METRIC(how, D, MeanOfOp<ElementwiseLossOp<PoissonRule>>)            \
  LOCKSTEP_METRIC(how, D, MeanOfOp<KLDivergenceOp>)                            \
  LOCKSTEP_METRIC(how, D, MeanOfOp<MeanSquaredErrorOp>)                        \
  LOCKSTEP_METRIC(how, D, MeanOfOp<SparseCategoricalCrossentropyOp>)           \
  LOCKSTEP_METRIC(how, D, RootMeanSquaredErrorOp)                              \
  LOCKSTEP_METRIC(how, D, TopKCategoricalAccuracyOp<float>)                    \
  LOCKSTEP_METRIC(how, D, TopKCategoricalAccuracyOp<std::int32_t>)

#define LOCKSTEP_OPTIMIZER_KERNELS(how, D) \
  LOCKSTEP_UPDATE(how, D, AdadeltaOp)      \
  LOCKSTEP_UPDATE(how, D, AdagradOp)       \
  LOCKSTEP_UPDATE(how, D, AdamOp)          \
  LOCKSTEP_UPDATE(how, D, AdamaxOp)        \
  LOCKSTEP_UPDATE(how, D, FtrlOp)          \
  LOCKSTEP_UPDATE(how, D, LambOp)          \
  LOCKSTEP_UPDATE(how, D, LionOp)          \
  LOCKSTEP_UPDATE(how, D, NadamOp)         \
  LOCKSTEP_UPDATE(how, D, RMSpropOp)       \
  LOCKSTEP_UPDATE(how, D, SGDOp)

// Updates of whole tensors, on devices over host memory only.
#define LOCKSTEP_HOST_OPTIMIZER_KERNELS(how, D) \
  LOCKSTEP_UPDATE(how, D, AdafactorOp)          \
  LOCKSTEP_UPDATE(how, D, MuonOp)

// Passes over the weights that training makes in addition to the optimizer's update.
#define LOCKSTEP_WEIGHT_KERNELS(how, D)                               \
  how struct detail::KernelRun<GradientPass, D, GradientPassIo<D>>;   \
  how struct detail::KernelRun<MovingAverage, D, MovingAverageIo<D>>; \
  how struct detail::KernelRun<Penalty, D, PenaltyIo<D>>;

#define LOCKSTEP_KERNELS(how, D)     \
  LOCKSTEP_LAYER_KERNELS(how, D)     \
  LOCKSTEP_LOSS_KERNELS(how, D)      \
  LOCKSTEP_METRIC_KERNELS(how, D)    \
  LOCKSTEP_OPTIMIZER_KERNELS(how, D) \
  LOCKSTEP_WEIGHT_KERNELS(how, D)

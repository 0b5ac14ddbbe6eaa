/// \file
/// Descriptors of a cuDNN graph, and its execution on the host in plain loops. Invariant: execution
/// depends only on what was described, tensor by tensor.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <vector>

#include "lockstep/core/numbers/float16.hpp"
#include "lockstep/devices/cuda/libraries/cudnn.hpp"

namespace testing::host_cudnn {

using Name = cudnnBackendAttributeName_t;
struct Made;
using Part = std::shared_ptr<Made>;

/// A descriptor.
struct Made {
  cudnnBackendDescriptorType_t type;
  std::map<Name, std::vector<char>> bytes;
  std::map<Name, std::vector<Part>> parts;

  template <class T>
  std::vector<T> list(Name name) const {
    const std::vector<char>& all = bytes.at(name);
    std::vector<T> values(all.size() / sizeof(T));
    std::memcpy(values.data(), all.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T = std::int64_t>
  T value(Name name) const {
    return list<T>(name).at(0);
  }
  const Made& part(Name name) const { return *parts.at(name).at(0); }
};

/// A tensor in GPU memory, or a virtual one between two operations.
struct Tensor {
  cudnnDataType_t type;
  void* place;  ///< address; null for a virtual tensor
  std::vector<float>* between;
  /// Of (n, channels, depth, height, width); images have a depth of 1.
  std::array<std::int64_t, 5> sizes{1, 1, 1, 1, 1}, steps{};

  Tensor(const Made& m, const std::map<std::int64_t, void*>& places,
         std::map<std::int64_t, std::vector<float>>& kept)
      : type(m.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    const auto id = m.value(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    const auto s = m.list<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
               t = m.list<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
    std::copy_n(s.begin(), 2, sizes.begin());
    std::copy_n(t.begin(), 2, steps.begin());
    std::copy(s.begin() + 2, s.end(), sizes.end() - std::ssize(s) + 2);
    std::copy(t.begin() + 2, t.end(), steps.end() - std::ssize(t) + 2);
    place = m.value<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL) != 0 ? nullptr : places.at(id);
    between = &kept[id];
    if (place == nullptr) between->resize(static_cast<std::size_t>(size()));
  }
  std::int64_t size() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]; }
  std::int64_t at(std::int64_t n, std::int64_t k, std::int64_t o, std::int64_t p,
                  std::int64_t q) const {
    return n * steps[0] + k * steps[1] + o * steps[2] + p * steps[3] + q * steps[4];
  }
  float get(std::int64_t i) const {
    if (place == nullptr) return (*between)[static_cast<std::size_t>(i)];
    if (type == CUDNN_DATA_HALF) return static_cast<lockstep::float16*>(place)[i];
    if (type == CUDNN_DATA_BFLOAT16) return static_cast<lockstep::bfloat16*>(place)[i];
    return static_cast<float*>(place)[i];
  }
  void put(std::int64_t i, float v) const {
    if (place == nullptr)
      (*between)[static_cast<std::size_t>(i)] = v;
    else if (type == CUDNN_DATA_HALF)
      static_cast<lockstep::float16*>(place)[i] = lockstep::float16(v);
    else if (type == CUDNN_DATA_BFLOAT16)
      static_cast<lockstep::bfloat16*>(place)[i] = lockstep::bfloat16(v);
    else
      static_cast<float*>(place)[i] = v;
  }
  std::vector<float> all() const {
    std::vector<float> values(static_cast<std::size_t>(size()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = get(static_cast<std::int64_t>(i));
    return values;
  }
  /// Calls f(n, channel, slice, row, column) for all elements.
  template <class F>
  void each(const F& f) const {
    for (std::int64_t n = 0; n < sizes[0]; ++n)
      for (std::int64_t o = 0; o < sizes[2]; ++o)
        for (std::int64_t p = 0; p < sizes[3]; ++p)
          for (std::int64_t q = 0; q < sizes[4]; ++q)
            for (std::int64_t k = 0; k < sizes[1]; ++k) f(n, k, o, p, q);
  }
};

/// Calls f(offset in x, in w, in y) for all products of a convolution. x has as many groups as its
/// channels are times those of w.
template <class F>
void products(const Made& geometry, const Tensor& x, const Tensor& w, const Tensor& y, const F& f) {
  const auto step = geometry.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
             apart = geometry.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS),
             before = geometry.list<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const std::int64_t channels = w.sizes[1], filters = w.sizes[0] / (x.sizes[1] / channels);
  // The place in x along an axis, (depth, height, width), which images have from the second one on.
  const std::size_t first = 3 - step.size();
  const auto place = [&](std::size_t axis, std::int64_t window, std::int64_t tap) {
    if (axis < first) return std::int64_t{0};
    const std::size_t i = axis - first;
    return window * step[i] - before[i] + tap * apart[i];
  };
  y.each([&](std::int64_t n, std::int64_t k, std::int64_t o, std::int64_t p, std::int64_t q) {
    for (std::int64_t t = 0; t < w.sizes[2]; ++t)
      for (std::int64_t r = 0; r < w.sizes[3]; ++r)
        for (std::int64_t s = 0; s < w.sizes[4]; ++s) {
          const std::int64_t g = place(0, o, t), h = place(1, p, r), v = place(2, q, s);
          if (g < 0 || h < 0 || v < 0) continue;
          if (g >= x.sizes[2] || h >= x.sizes[3] || v >= x.sizes[4]) continue;
          for (std::int64_t c = 0; c < channels; ++c)
            f(x.at(n, k / filters * channels + c, g, h, v), w.at(k, c, t, r, s),
              y.at(n, k, o, p, q));
        }
  });
}
/// `to` += of[i] * other[j] over all products, accumulated in double.
template <class Places>
void convolve(const Tensor& to, const Tensor& a, const Tensor& b, const Places& places) {
  const std::vector<float> of_a = a.all(), of_b = b.all();
  std::vector<double> sums(static_cast<std::size_t>(to.size()));
  places([&](std::int64_t t, std::int64_t i, std::int64_t j) {
    sums[static_cast<std::size_t>(t)] +=
        static_cast<double>(of_a[static_cast<std::size_t>(i)]) * of_b[static_cast<std::size_t>(j)];
  });
  for (std::size_t i = 0; i < sums.size(); ++i)
    to.put(static_cast<std::int64_t>(i), static_cast<float>(sums[i]));
}

inline void run(const Made& graph, const std::map<std::int64_t, void*>& places) {
  std::map<std::int64_t, std::vector<float>> kept;
  for (const Part& op : graph.parts.at(CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    const auto tensor = [&](Name name) { return Tensor(op->part(name), places, kept); };
    if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) {
      const Tensor x = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X),
                   w = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W),
                   y = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
      convolve(y, x, w, [&](const auto& add) {
        products(op->part(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC), x, w, y,
                 [&](auto i, auto j, auto k) { add(k, i, j); });
      });
    } else if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
      const Tensor x = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX),
                   w = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W),
                   y = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
      convolve(x, w, y, [&](const auto& add) {
        products(op->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC), x, w, y,
                 [&](auto i, auto j, auto k) { add(i, j, k); });
      });
    } else if (op->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
      const Tensor x = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X),
                   w = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW),
                   y = tensor(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
      convolve(w, x, y, [&](const auto& add) {
        products(op->part(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC), x, w, y,
                 [&](auto i, auto j, auto k) { add(j, i, k); });
      });
    } else {
      const Tensor from = tensor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                   to = tensor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
      const bool adds = op->parts.count(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) > 0;
      const Tensor other = adds ? tensor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC) : from;
      to.each([&](std::int64_t n, std::int64_t k, std::int64_t o, std::int64_t p, std::int64_t q) {
        const float v = from.get(from.at(n, k, o, p, q));
        to.put(to.at(n, k, o, p, q), adds ? v + other.get(k) : std::max(v, 0.0f));
      });
    }
  }
}

}  // namespace testing::host_cudnn

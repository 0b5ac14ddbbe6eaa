/// \file
/// A minimal type for each concept, from which nothing can be removed. `archetypes.cpp` has
/// variants that violate one requirement each; `training.cpp` trains with all of them together.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/concepts/callback.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/layer.hpp"
#include "lockstep/concepts/loss.hpp"
#include "lockstep/concepts/metric.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "lockstep/concepts/strategy.hpp"

namespace archetype {

namespace ls = lockstep;

struct Group {
  std::size_t rank() const { return 0; }
  std::size_t size() const { return 1; }
  void abort() {}
  void all_reduce(float*, std::size_t) {}
  void all_reduce(double*, std::size_t) {}
  void all_reduce(float*, std::size_t, double*, std::size_t) {}
  void broadcast(float*, std::size_t, std::size_t) {}
  void broadcast(std::byte*, std::size_t, std::size_t) {}
  void all_gather(const std::byte* p, std::size_t n, std::byte* out) { std::memcpy(out, p, n); }
  void barrier() {}
};

struct Exchange {
  void post(float*, std::size_t) {}
  void finish(float*, std::size_t, double*, std::size_t) {}
};

/// A device context over malloc.
struct Context {
  std::byte* allocate(std::size_t n) {
    return static_cast<std::byte*>(std::aligned_alloc(64, (n + 63) / 64 * 64));
  }
  void release(std::byte* p, std::size_t) { std::free(p); }
  void upload(std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); }
  void download(std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); }
  void copy(std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); }
  void clear(std::byte* p, std::size_t n) { std::memset(p, 0, n); }
  const float* feed(int, const float* p, std::size_t) { return p; }
  const std::int32_t* feed(int, const std::int32_t* p, std::size_t) { return p; }
  void add(float* y, const float* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
  }
  int threads() const { return 1; }
  void synchronize() {}
  int scope() { return 0; }
};

struct Device {
  using real = float;
  using Context = archetype::Context;
  using fusions = ls::List<>;
  static constexpr std::string_view name = "tiny", precision = "float32";
  Context open(std::size_t, std::size_t) const { return {}; }
};

/// y = w x.
struct ScaleOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr std::size_t weights() const { return 1; }
  bool operator==(const ScaleOp&) const = default;
};
struct Scale {
  static constexpr std::string_view name = "scale";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 1> parameters(ls::Shape) {
    return {ls::Parameter{"factor", ls::shape(1), {}, &fill, {}, true, true}};
  }
  static constexpr ScaleOp op(ls::Shape in) { return {in}; }
  static void fill(ls::Philox&, const ls::Shape&, ls::Fans, std::span<double> values) {
    std::fill(values.begin(), values.end(), 0.5);
  }
};

/// A join rule: how a block combines its two branches.
struct Join {
  static constexpr std::string_view name = "join";
  static constexpr bool accepts(ls::Shape, ls::Shape) { return true; }
  static constexpr ScaleOp op(ls::Shape a, ls::Shape) { return {a}; }
};

/// The sum of squared differences.
struct SquaresOp {
  std::size_t size;
};
struct Squares {
  using target_type = float;
  static constexpr std::string_view name = "squares";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr ls::Shape target_shape(ls::Shape out) { return out; }
  SquaresOp op(ls::Shape out) const { return {out.size()}; }
};

/// A metric: the number of examples.
struct SeenOp {};
struct Seen {
  static constexpr std::string_view name = "seen";
  static constexpr std::size_t state_size = 1;
  template <class Target>
  static constexpr bool accepts(ls::Shape) {
    return true;
  }
  template <class Target>
  SeenOp op(ls::Shape) const {
    return {};
  }
  double result(const double* state) const { return state[0]; }
};

/// w -= rate g.
struct DescentOp {
  double rate;
};
struct Descent {
  static constexpr std::string_view name = "descent";
  std::size_t slot_count() const { return 0; }
  std::string_view slot_name(std::size_t) const { return ""; }
  double learning_rate(std::uint64_t) const { return 0.1; }
  DescentOp op(double rate, std::uint64_t) const { return {rate}; }
};

/// x = 0, 1, 2, 3 and y = 2 x.
struct Stream {
  std::uint64_t at = 0;
  std::optional<std::uint64_t> next() {
    return at < 4 ? std::optional<std::uint64_t>(at++) : std::nullopt;
  }
};
struct Points {
  using fields = ls::Labeled<float>;
  ls::Shape shape(std::size_t = 0) const { return ls::shape(1); }
  std::optional<std::uint64_t> size() const { return 4; }
  Stream indices(ls::Pass) const { return {}; }
  template <class T>
  void gather(ls::Pass, std::span<const ls::Item> items, ls::Rows<T, fields> to) const {
    for (std::size_t i = 0; i < items.size(); ++i) {
      const T x = static_cast<T>(items[i].index);
      if (to.x() != nullptr) to.x()[i] = x;
      if (to.y() != nullptr) to.y()[i] = 2 * x;
    }
  }
};
struct Batches : Points {
  std::size_t batch_size() const { return 2; }
  std::size_t prefetch_depth() const { return 0; }
};
/// The same data with sample weights: example x has weight x.
struct Weighed : Points {
  using fields = ls::with_weight<Points::fields>;
  ls::Shape shape(std::size_t field = 0) const { return field < 2 ? ls::shape(1) : ls::Shape{}; }
  template <class T>
  void gather(ls::Pass pass, std::span<const ls::Item> items, ls::Rows<T, fields> to) const {
    Points::gather(pass, items, to.template without<Points::fields>(ls::FieldRole::weight));
    for (std::size_t i = 0; i < items.size() && to.w() != nullptr; ++i)
      to.w()[i] = static_cast<T>(items[i].index);
  }
};

struct Session {
  Group group;
  Exchange exchange;
  Context context;
  void each(auto&& body) {
    body(ls::ReplicaContext<Device>{0, 0, ls::CollectiveRef(group),
                                    ls::GradientExchange<float>(exchange), context});
  }
  std::size_t local_replicas() const { return 1; }
  std::size_t replicas() const { return 1; }
  std::size_t first_replica() const { return 0; }
  std::size_t virtual_shards() const { return 0; }
  void agree(std::string_view, const ls::Signature&) {}
  void note(std::uint64_t, ls::Phase) {}
  void end_epoch(int) {}
  void fail(const std::string&) {}
  std::size_t workers() const { return 1; }
  std::size_t rank() const { return 0; }
  bool is_chief() const { return true; }
};
struct Strategy {
  using device = Device;
  static constexpr std::string_view name = "alone";
  Session open() const { return {}; }
};

struct Callback : ls::Callback {};

}  // namespace archetype

namespace lockstep {

template <>
struct Kernel<archetype::ScaleOp, archetype::Device> : KernelTraits {
  static constexpr bool keeps_x = true;
  static void forward(const archetype::ScaleOp& op, const Io<archetype::Device>& io) {
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) io.y[i] = io.w[0] * io.x[0][i];
  }
  static void backward(const archetype::ScaleOp& op, const Io<archetype::Device>& io) {
    io.dw[0] = 0;
    for (std::size_t i = 0; i < io.step.count * op.in.size(); ++i) {
      io.dw[0] += io.x[0][i] * io.dy[i];
      if (io.dx[0] != nullptr) io.dx[0][i] = io.w[0] * io.dy[i];
    }
  }
};
template <>
struct Kernel<archetype::SquaresOp, archetype::Device> {
  static void run(const archetype::SquaresOp& op, const LossIo<archetype::Device, float>& io) {
    for (std::size_t i = 0; i < io.count * op.size; ++i) {
      const float e = io.prediction[i] - io.target[i];
      if (io.gradient != nullptr) io.gradient[i] = static_cast<float>(io.scale) * 2 * e;
      *io.sum += static_cast<double>(e * e);
    }
  }
};
template <>
struct Kernel<archetype::SeenOp, archetype::Device> {
  static void run(const archetype::SeenOp&, const MetricIo<archetype::Device, float>& io) {
    io.state[0] += static_cast<double>(io.count);
  }
};
template <>
struct Kernel<archetype::DescentOp, archetype::Device> {
  static void update(const archetype::DescentOp& op, const UpdateIo<archetype::Device>& io) {
    for (std::size_t i = 0; i < io.size; ++i) io.w[i] -= static_cast<float>(op.rate) * io.g[i];
  }
};

}  // namespace lockstep

/// \file
/// A data set in device memory. The rows are uploaded once; each replica then gathers its batches
/// on its device. Invariants: the host uploads row numbers only, many batches ahead, so that a step
/// does not wait for it; batches, their order and random draws are those of Loader.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/concepts/rows.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/core/type_list.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/data/operations/example_draws.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/operations/weight_shapes.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/training/step/owned_list.hpp"

namespace lockstep::detail {

template <class D, class Changes>
inline constexpr bool has_kernels = false;
template <class D, class... Ops>
inline constexpr bool has_kernels<D, std::tuple<RowChange<Ops>...>> =
    (HasKernel<Ops, D> && ... && true);

/// Whether device D has the kernels to hold the data set and apply its row changes.
template <class D, class Data>
inline constexpr bool can_reside = [] {
  if constexpr (!HostDevice<D> && KeepsRows<Data> && HasKernel<GatherRows, D>)
    return KeepsData<typename D::Context> &&
           has_kernels<D, decltype(std::declval<const Data&>().changes())>;
  else
    return false;
}();

/// The data set, for all replicas of this process.
///
///     host    shuffled order --> drawn_: row numbers of about 65,536 examples
///                                   | uploaded when a replica first needs them
///     device  rows ---- gather by index ----> x[0] -- change --> x[1] -- change --> x[0] ...
///             targets -- gather by index ---> y
///
/// `begin` and `next` run in the thread of fit; `fetch` runs in each replica's own thread, between
/// two calls of `next`.
template <class D, BatchedDataset Data>
class ResidentRows {
 public:
  using T = typename D::real;
  using Context = typename D::Context;
  using Target = target_of<Data, T>;
  /// From the size of a global batch to the part that this process loads.
  using Part = std::function<Slice(std::size_t)>;

  /// `largest`: maximum number of examples of a slice.
  /// `weighed`: the positions of an example that have a weight each, as in Loader.
  ResidentRows(const Data& data, std::size_t replicas, std::size_t largest, Part part,
               const ClassWeights& classes, Shape weighed = {})
      : data_(data),
        part_(std::move(part)),
        classes_(classes),
        weighed_(weighed.size()),
        largest_(largest) {
    copies_.resize(replicas);
  }
  ResidentRows(const ResidentRows&) = delete;
  ResidentRows& operator=(const ResidentRows&) = delete;

  /// Bytes that upload_rows allocates on each device.
  [[gnu::cold]] std::size_t bytes() const {
    const auto kept = data_.kept_rows();
    const std::size_t drawn = sizeof(std::uint32_t) + (is_weighted() ? weighed_ * sizeof(T) : 0);
    const std::size_t example = 2 * largest_row() * sizeof(T) + target_size() * sizeof(Target);
    return kept.x.size() * sizeof(Element) + kept.y.size() * sizeof(Target) + most_drawn() * drawn +
           largest_ * example;
  }
  /// Whether row numbers fit in 32 bits.
  bool fits() const {
    const auto kept = data_.kept_rows();
    return kept.x.size() / kept.shape.size() <= std::numeric_limits<std::uint32_t>::max();
  }
  /// Uploads the rows to a replica's device. Call in the replica's thread. \throws OutOfMemory.
  [[gnu::cold]] void upload_rows(std::size_t local, Context& context) {
    const auto kept = data_.kept_rows();
    auto copy = std::make_unique<Copy>();
    copy->context = &context;
    copy->rows = uploaded<Element>(context, kept.x);
    copy->targets = uploaded<Target>(context, kept.y);
    copy->index = Buffer<Context, std::uint32_t>(context, most_drawn());
    if (is_weighted()) copy->weights = Buffer<Context, T>(context, most_drawn() * weighed_);
    for (auto& x : copy->x) x = Buffer<Context, T>(context, largest_ * largest_row());
    copy->y = Buffer<Context, Target>(context, largest_ * target_size());
    copies_.put(local, copy.release());
  }

  /// Same contract as Loader::begin.
  [[gnu::cold]] void begin(Pass pass, std::uint64_t skip_examples = 0) {
    pass_ = pass;
    ordinal_ = first_drawn_ = pipeline::begin(data_, stream_, pass, skip_examples);
    drawn_.clear();
  }

  /// This process' share of the next batch of the pass. \returns false at the end of the pass. The
  /// batch has labels on the host, for checks; everything else is gathered by `fetch`.
  bool next(LoadedBatch& out) {
    if (place_of(ordinal_) == drawn_.size() && !draw()) return false;
    const std::size_t left = drawn_.size() - place_of(ordinal_);
    const std::size_t global = std::min(data_.batch_size(), left);
    const BatchSlice slice = whole_batch(global, pass_.number, ordinal_).with(part_(global));
    out = LoadedBatch{.slice = slice, .fetch = {Constant<&ResidentRows::fetch>{}, *this}};
    if (!labels_.empty())
      out.field[target_field<Data>] =
          labels_.data() + place_of(slice.first_ordinal) * target_size();
    ordinal_ += global;
    return true;
  }

  /// Gathers a slice on the device of replica `local` and applies the row changes. Ping-pongs
  /// between two buffers, since not every change works in place. The first change is fused into
  /// the gather if it is a scaling.
  LoadedBatch fetch(std::size_t local, const BatchSlice& slice) {
    Copy& copy = *copies_[local];
    const std::size_t place = place_of(slice.first_ordinal);
    Context& context = *copy.context;
    if (copy.draws != draws_) {
      upload_some(context, copy.index, drawn_);
      if (is_weighted()) upload_some(context, copy.weights, weights_);
      copy.draws = draws_;
    }
    T* x = copy.x[0].data();
    T* other = copy.x[1].data();
    const auto gather = [&](GatherRows op) {
      Kernel<GatherRows, D>::run(
          op, GatherRowsIo<D, Element, Target>{context, slice.count, copy.index.data() + place,
                                               copy.rows.data(), first_size(), x,
                                               copy.targets.data(), target_size(), copy.y.data()});
    };
    bool gathered = false;
    const auto apply = [&]<class Op>(const RowChange<Op>& change) {
      if (!std::exchange(gathered, true)) {
        if constexpr (std::same_as<Op, pipeline::Scaling>)
          return gather({true, change.op.scale, change.op.offset});
        else
          gather({});
      }
      std::uint64_t key = 0;
      if constexpr (Op::random) key = pipeline::draws_key(pass_, Op::name, change.place);
      const ChangeRowsIo<D> io{
          context, slice.count,         change.in, change.out,
          key,     slice.first_ordinal, x,         Kernel<Op, D>::in_place ? x : other};
      Kernel<Op, D>::run(change.op, io);
      if (io.y != x) std::swap(x, other);
    };
    std::apply([&](const auto&... change) { (apply(change), ...); }, changes_);
    if (!gathered) gather({});
    return {.field = {x, copy.y.data(),
                      is_weighted() ? copy.weights.data() + place * weighed_ : nullptr},
            .slice = slice};
  }

 private:
  using Kept = decltype(std::declval<const Data&>().kept_rows());
  using Changes = decltype(std::declval<const Data&>().changes());
  /// Bytes are stored as bytes; the gather converts them to T.
  using Element =
      std::conditional_t<std::same_as<typename decltype(Kept::x)::value_type, std::uint8_t>,
                         std::uint8_t, T>;

  /// A replica's copy of the data set, in its device's memory.
  struct Copy {
    Context* context = nullptr;
    Buffer<Context, Element> rows;
    Buffer<Context, Target> targets;
    Buffer<Context, std::uint32_t> index;  // copy of drawn_
    Buffer<Context, T> weights;            // copy of weights_
    std::array<Buffer<Context, T>, 2> x;   // a slice's examples, before and after a change
    Buffer<Context, Target> y;             // a slice's targets
    std::uint64_t draws = 0;               // draws_ at the last upload of index and weights
  };

  bool is_weighted() const { return has_weights<Data> || !classes_.empty(); }
  std::size_t target_size() const { return data_.shape(target_field<Data>).size(); }
  std::size_t first_size() const { return data_.kept_rows().shape.size(); }
  /// Position in drawn_ of an example of the pass.
  std::size_t place_of(std::uint64_t ordinal) const {
    return static_cast<std::size_t>(ordinal - first_drawn_);
  }

  /// Rows drawn at a time: a multiple of the batch size, so that no batch is split; fewer if they
  /// have many labels, which are copied.
  std::size_t most_drawn() const {
    constexpr std::size_t rows = 1 << 16, values = 1 << 22;
    const std::size_t about = std::min(rows, values / std::max<std::size_t>(target_size(), 1));
    return std::max<std::size_t>(about / data_.batch_size(), 1) * data_.batch_size();
  }

  /// Draws the rows of the next batches. \returns false at the end of the pass.
  [[gnu::cold]] bool draw() {
    drawn_.clear();
    items_.clear();
    first_drawn_ = ordinal_;
    for (std::uint64_t i = 0; items_.size() < most_drawn(); ++i) {
      const auto index = stream_->next();
      if (!index) break;
      items_.push_back({*index, ordinal_ + i});
      drawn_.push_back(static_cast<std::uint32_t>(data_.row_of(*index)));
    }
    ++draws_;
    if (std::same_as<Target, std::int32_t> || !classes_.empty()) gather_targets();
    if (is_weighted()) weigh();
    return !drawn_.empty();
  }
  /// Copies the drawn rows' targets to labels_, for label checks and class weights.
  void gather_targets() {
    const auto kept = data_.kept_rows();
    const std::size_t width = target_size();
    labels_.resize(drawn_.size() * width);
    for (std::size_t i = 0; i < drawn_.size(); ++i)
      for (std::size_t k = 0; k < width; ++k)
        labels_[i * width + k] = static_cast<Target>(kept.y[drawn_[i] * width + k]);
  }
  /// Computes the drawn rows' sample weights, class weights included.
  void weigh() {
    weights_.assign(drawn_.size() * weighed_, T(1));
    if constexpr (has_weights<Data>) {
      data_.gather(pass_, std::span<const Item>(items_),
                   RowsOf<Data, T>(nullptr, nullptr, weights_.data()));
      repeat_weights(weights_.data(), drawn_.size(),
                     weighed_ / data_.shape(weight_field<Data>).size());
    }
    classes_.weigh(labels_.data(), target_size() / weighed_, weights_.size(), weights_.data());
  }

  /// Uploads `values`, converted to E, into a new buffer.
  template <class E, class From>
  static Buffer<Context, E> uploaded(Context& context, std::span<const From> values) {
    Buffer<Context, E> buffer(context, values.size());
    if constexpr (std::same_as<E, From>)
      buffer.upload(values.data());
    else
      buffer.upload(std::vector<E>(values.begin(), values.end()).data());
    context.synchronize();
    return buffer;
  }
  template <class E>
  static void upload_some(Context& context, const Buffer<Context, E>& to,
                          const std::vector<E>& from) {
    context.upload(reinterpret_cast<std::byte*>(to.data()),
                   reinterpret_cast<const std::byte*>(from.data()), from.size() * sizeof(E));
    wait_for(context);
  }
  /// Maximum number of elements of an example before, between and after the changes.
  std::size_t largest_row() const {
    std::size_t largest = first_size();
    const auto visit = [&](const auto& change) { largest = std::max(largest, change.out.size()); };
    std::apply([&](const auto&... change) { (visit(change), ...); }, changes_);
    return largest;
  }

  Data data_;
  Changes changes_ = data_.changes();
  Part part_;
  ClassTable classes_;
  std::size_t weighed_;
  std::size_t largest_;
  OwnedList<Copy> copies_;
  Pass pass_;
  std::optional<pipeline::StreamOf<Data>> stream_;
  std::uint64_t ordinal_ = 0, first_drawn_ = 0, draws_ = 0;
  std::vector<Item> items_;
  std::vector<std::uint32_t> drawn_;  // row numbers, in the order of the pass
  std::vector<Target> labels_;        // the drawn rows' targets
  std::vector<T> weights_;            // the drawn rows' sample weights
};

}  // namespace lockstep::detail

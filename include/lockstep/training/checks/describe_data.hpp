/// \file
/// The properties of a data set that all processes of a job must have in common: sizes, order, and
/// the contents of a sample of its examples. Invariants: the sample is the same on all workers,
/// whatever their shares; describing data draws no random numbers of a run and changes no order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/pipe.hpp"

namespace lockstep::detail {

/// The contents of a field of the sample, as a digest.
struct FieldContents {
  FieldRole role;
  std::string digest;
};

/// See the file's comment.
struct DescribedData {
  std::optional<std::uint64_t> examples;  ///< nullopt: the data never end
  std::size_t batch;                      ///< global batch size
  bool is_weighted;                       ///< has sample weights
  std::uint64_t order;  ///< hash of the first 64 indices of a pass, to detect a different order
  std::string first;    ///< the first indices of a pass, for messages: "5, 17, 3, 8, ..., "
  std::optional<std::uint64_t> round{};  ///< examples per round of an endless `repeat`
  bool is_generated = false;             ///< a generator, which may be random on purpose
  std::vector<FieldContents> contents{};
};

/// The contents of examples that a user's function computes differently at each call.
inline constexpr std::string_view varying_contents = "different at each call";
/// The contents of generated examples, in a comparison that must not fail.
inline constexpr std::string_view generated_contents = "computed by a generator";
/// Name of the field with the digest of generated examples, which compare_signatures removes.
inline constexpr std::string_view generated_field = "generated examples";

/// A digest of real values that tolerates differences of rounding: the same function may round
/// differently on processors of another kind. Four random projections, rounded to about 1e-5 of the
/// values' typical sum.
class RoundedDigest {
 public:
  LOCKSTEP_DECL void add(double value);
  LOCKSTEP_COLD_DECL std::uint64_t value() const;

 private:
  std::uint64_t count_ = 0;
  std::uint64_t not_finite_ = 0;  // digest of the positions of values that are not finite
  std::array<double, 4> sums_{};
  double magnitude_ = 0;
};

/// Reads the sample and fills `order`, `first` and `contents`: of at most 16 batches, spread over
/// the first `examples` examples of a pass, the first, the middle and the last example each. Each
/// is computed twice, to find functions that give another result at each call.
template <class T>
void read_sample(ExampleSource<T>& source, const BatchSizes& sizes, std::uint64_t examples,
                 DescribedData& to);

/// The examples of a pass, or of one round where `repeat` makes the pass endless.
template <class Data>
std::optional<std::uint64_t> examples_of_round(const Data& data) {
  if (const auto examples = data.size()) return examples;
  if constexpr (requires { data.upstream(); })
    return examples_of_round(data.upstream());
  else
    return std::nullopt;
}

/// Describes `data`, of which a run reads `steps` batches, nullopt: all. T: the device's element
/// type.
template <class T, class Data>
DescribedData described(const Data& data, std::optional<std::uint64_t> steps = {}) {
  DescribedData result{.examples = data.size(),
                       .batch = data.batch_size(),
                       .is_weighted = has_weights<Data>,
                       .order = 0,
                       .first = {},
                       .round = examples_of_round(data),
                       .is_generated = pipeline::is_generated<Data>};
  PipelineSource<T, Data> source(data);
  constexpr std::uint64_t most = 1 << 20;
  std::uint64_t examples = result.round.value_or(most);
  if (steps && *steps <= most) examples = std::min(examples, *steps * result.batch);
  read_sample(source, batch_sizes(data), std::min(examples, most), result);
  return result;
}

/// Adds the contents to a signature. `of`: "the examples". Without `all`, only the features.
LOCKSTEP_COLD_DECL void add_contents(Signature& to, const DescribedData& data, std::string_view of,
                                     bool all = true);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/checks/describe_data.ipp"
#endif

/// \file
/// The pipeline of the programs that train on examples in memory.
#pragma once

#include <cstdint>
#include <limits>

#include <lockstep/lockstep.hpp>
#include <lockstep/training/report/profile.hpp>

#include "support/job.hpp"

namespace support {

/// Trains by the options on `parts.train`. Calls `after(test)` with the batches of the test
/// part, unless a signal interrupted training.
template <class Model, class Examples, class After>
void train_on_parts(Model& model, Job& job, const Examples& parts, After&& after) {
  namespace ls = lockstep;
  const Options& o = job.options();
  const auto some = parts.train | ls::skip(o.skip) |
                    ls::take(o.take.value_or(std::numeric_limits<std::uint64_t>::max()));
  if (some.size() == std::uint64_t{0})
    throw ls::Error("--skip {} leaves no example to train on; skip fewer", o.skip);
  const auto train = some | ls::shuffle(o.shuffle ? 10'000 : 1) |
                     (o.steps_per_epoch ? ls::repeat : ls::repeat(1)) | ls::batch(o.batch);
  const auto test = parts.test | ls::batch(o.batch);
  job.train(model, train, o.validate ? &test : nullptr, [&](const ls::History&) { after(test); });
}

}  // namespace support

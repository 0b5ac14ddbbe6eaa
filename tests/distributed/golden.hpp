/// \file
/// Golden runs of Keras with real processes: equal to Keras, to one device, and on all ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "distributed/processes.hpp"
#include "golden/weighted.hpp"
#include "lockstep/cluster.hpp"
#include "lockstep/strategies/multi_worker_mirrored.hpp"

namespace distributed {

inline std::vector<double> flat(const golden::Trained& run) {
  std::vector<double> all = run.losses;
  all.insert(all.end(), run.accuracies.begin(), run.accuracies.end());
  for (const auto* part : {&run.gradients, &run.final})
    for (const auto& [name, values] : *part) all.insert(all.end(), values.begin(), values.end());
  return all;
}

/// All ranks must have succeeded with equal results.
inline void all_give_the_same(Processes& job) {
  REQUIRE(job.all_end());
  for (std::size_t rank = 0; rank < job.size(); ++rank) {
    CAPTURE(rank, job.report(rank).what.text, job.logs());
    REQUIRE(job.report(rank).outcome == Outcome::done);
    REQUIRE(job.numbers(rank) == job.numbers(0));
  }
}

/// The inverse of flat(), for a run of the same sizes as `like`.
inline golden::Trained trained_from(const std::vector<double>& all, const golden::Trained& like) {
  REQUIRE(all.size() == flat(like).size());
  golden::Trained run = like;
  auto from = all.begin();
  const auto fill = [&](std::vector<double>& to) {
    std::copy_n(from, to.size(), to.begin());
    from += static_cast<std::ptrdiff_t>(to.size());
  };
  fill(run.losses);
  fill(run.accuracies);
  for (auto* part : {&run.gradients, &run.final})
    for (auto& [name, values] : *part) fill(values);
  return run;
}

template <class D>
struct WorkersCheck {
  template <class Train>
  void operator()(const golden::GoldenFile& file, const std::string& prefix, const Train& train,
                  const golden::Limits& limits, bool is_adam) const {
    const golden::Trained one = train(ls::OneDevice<D>{.on = golden::single<D>()});
    for (std::size_t workers = 1; workers <= 4; ++workers)
      for (std::size_t replicas = 1; replicas <= 2; ++replicas) {
        CAPTURE(prefix, workers, replicas);
        Processes job(
            workers,
            [&](Here& own) {
              own.give(flat(train(
                  ls::MultiWorkerMirrored<D>{.replicas = replicas, .on = golden::single<D>()})));
            },
            300s);
        all_give_the_same(job);
        const golden::Trained many = trained_from(job.numbers(0), one);
        golden::is_as_keras(many, file, prefix, limits);
        golden::MirroredCheck<D>::is_as_one(many, one, is_adam);
        CHECK(job.has_no_orphans());
      }
  }
};

/// Sample weights and class weights: two and three processes equal Keras on all ranks.
template <class D>
void workers_meet_weighted() {
  const golden::GoldenFile file("weighted");
  for (const std::string& prefix : golden::weighted_prefixes)
    for (std::size_t workers = 2; workers <= 3; ++workers) {
      CAPTURE(prefix, workers);
      Processes job(
          workers,
          [&](Here& own) {
            std::vector<double> all;
            for (const auto& [name, values] : golden::weighted_run(
                     file, prefix,
                     ls::MultiWorkerMirrored<D>{.replicas = 2, .on = golden::single<D>()}))
              all.insert(all.end(), values.begin(), values.end());
            own.give(all);
          },
          300s);
      all_give_the_same(job);
      auto results =
          golden::weighted_run(file, prefix, ls::OneDevice<D>{.on = golden::single<D>()});
      const std::vector<double> all = job.numbers(0);
      auto from = all.begin();
      for (auto& [name, values] : results) {
        REQUIRE(all.end() - from >= static_cast<std::ptrdiff_t>(values.size()));
        std::copy_n(from, values.size(), values.begin());
        from += static_cast<std::ptrdiff_t>(values.size());
      }
      CHECK(from == all.end());
      golden::are_as_keras({{prefix, results}}, file, golden::tolerance<D>);
      CHECK(job.has_no_orphans());
    }
}

}  // namespace distributed

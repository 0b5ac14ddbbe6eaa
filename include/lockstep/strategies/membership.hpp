/// \file
/// The third argument of strategies, which decides whether a job survives the loss of a process, and
/// the session that follows from it.
#pragma once

#include <type_traits>

#include "lockstep/strategies/worker_session.hpp"

namespace lockstep {

/// The membership of a job that a lost process ends, the default; the other one is ls::Elastic.
struct FixedWorkers {};

namespace detail {

template <class Strategy>
class ElasticWorkerSession;

/// The session of a strategy. That of ls::Elastic is in elastic_session.hpp, so that other programs
/// compile nothing of it.
template <class Membership, class Strategy>
struct SessionOf {
  static_assert(std::is_same_v<Membership, FixedWorkers>,
                "lockstep: the third argument of MultiWorkerMirrored and ParameterServer must be "
                "ls::Elastic, with #include <lockstep/elastic.hpp>");
  using type = WorkerSession<Strategy>;
};

}  // namespace detail
}  // namespace lockstep

/// \file
/// A strategy with another update policy. Invariant: replicas, session and options are those of the
/// given strategy.
#pragma once

#include <utility>

#include "lockstep/concepts/strategy.hpp"

namespace lockstep {

template <class Policy>
struct Recoverable;

namespace detail {
/// P, or in a job with ls::Elastic what survives a loss within an update, if P can.
template <class S, class P>
struct PolicyIn {
  using type = P;
};
template <class S, class P>
  requires requires(const P& policy) {
    policy.copies;
    requires S::Session::can_reform;
  }
struct PolicyIn<S, P> {
  using type = Recoverable<P>;
};
}  // namespace detail

/// S with the update policy P; written `strategy | policy`.
/// \code
///   ls::UpdatedBy<ls::Mirrored<ls::Cpu>, ls::Sharded>{{.replicas = 4}}
///   ls::Mirrored<ls::Cpu>{.replicas = 4} | ls::Sharded{}                   // the same
/// \endcode
template <class S, class P>
struct UpdatedBy : S {
  static constexpr bool has_default_policy = !requires { typename S::update_policy; };
  static_assert(has_default_policy,
                "lockstep: strategy | policy: the strategy has its own update policy, as "
                "ParameterServer and the result of another | do; leave out the second one");
  // Complete here, so that a policy refuses a device where a program names both.
  static_assert(sizeof(typename P::template Replica<typename S::device>) > 0);
  using update_policy = typename detail::PolicyIn<S, P>::type;

  [[no_unique_address]] P policy{};  ///< with its options
};

/// The strategy with this update policy instead of its default one.
template <Strategy S, class P>
  requires requires { typename P::template Replica<typename S::device>; }
UpdatedBy<S, P> operator|(S strategy, P policy) {
  return {std::move(strategy), std::move(policy)};
}

}  // namespace lockstep

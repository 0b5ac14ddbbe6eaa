// expect: lockstep::Model: under this update policy a process that dies takes its part of the optimizer's buffers along; leave out ls::Elastic, or use ls::Recoverable of the policy, or ls::Replicated
#include "lockstep/cluster.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"

namespace ls = lockstep;

/// Divides the slots, without copies.
struct Divided {
  template <class D>
  using Replica = ls::Sharded::Replica<D>;
};
struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
ls::Model model{
    Net{}, ls::MultiWorkerMirrored<ls::Reference<float>, ls::Tcp, ls::Elastic>{} | Divided{},
    ls::MeanSquaredError{}, ls::SGD{}};

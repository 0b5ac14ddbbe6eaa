// expect: lockstep::Model: under this update policy a process that dies takes its part of the optimizer's buffers along; leave out ls::Elastic, or use ls::Recoverable of the policy, or ls::Replicated
#include "lockstep/cluster.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"

namespace ls = lockstep;

struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
struct Divided {
  template <class D>
  struct Replica : ls::Replicated::Replica<D> {
    using ls::Replicated::Replica<D>::Replica;
    static constexpr bool divides_slots = true;
  };
};
struct Strategy : ls::MultiWorkerMirrored<ls::Reference<float>, ls::Tcp, ls::Elastic> {
  using update_policy = Divided;
};
ls::Model model{Net{}, Strategy{}, ls::MeanSquaredError{}, ls::SGD{}};

// expect: lockstep: ls::Elastic needs replicas on CPUs that exchange over ls::Tcp; leave it out, and let the launcher start the job again from its checkpoint
#include "lockstep/cluster.hpp"
#include "lockstep/elastic.hpp"
#include "lockstep/reference.hpp"

struct Fixed : lockstep::Tcp {
  static constexpr bool can_reform = false;
};
lockstep::MultiWorkerMirrored<lockstep::Reference<float>, Fixed, lockstep::Elastic> strategy;
auto session = strategy.open();

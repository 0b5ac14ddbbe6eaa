// expect: lockstep: strategy | policy: the policy's Replica lacks a member for the strategy's device; see concepts/update_policy.hpp
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/sharded.hpp"

struct Policy {
  template <class D>
  struct Replica {};
};
lockstep::UpdatedBy<lockstep::Mirrored<lockstep::Reference<float>>, Policy> strategy;

// expect: lockstep::shard: a shuffle before shard would select other examples in each pass; put
#include "lockstep/data/operations/shard.hpp"
#include "lockstep/data/operations/shuffle.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace ls = lockstep;
int main() {
  const auto data =
      ls::tensors(std::vector<float>(8), ls::shape(1), std::vector<float>(8), ls::shape(1));
  return static_cast<int>((data | ls::shuffle(8) | ls::shard(2, 0)).size().value_or(0));
}

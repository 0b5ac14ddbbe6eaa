// Compiled with -finstrument-functions, with which g++ also compiles always_inline functions alone.
#include <lockstep/cpu.hpp>
#include <lockstep/lockstep.hpp>
namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<8, 8, 1>, ls::Flatten, ls::Dense<10>> {};
int main() {
  ls::Model m{Net{}, ls::OneDevice<ls::CpuBFloat16>{}, ls::SparseCategoricalCrossentropy{},
              ls::Adam{}};
  m.fit(ls::tensors(std::vector<float>(64), ls::shape(8, 8, 1), std::vector<std::int32_t>(1)) |
        ls::batch(1));
}

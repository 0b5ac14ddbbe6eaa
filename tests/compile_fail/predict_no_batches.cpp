// expect: lockstep::Model: the data are not batched; end the pipeline with ls::batch(n)
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>
namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
int main() {
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  model.predict(
      ls::tensors(std::vector<float>(4), ls::shape(1), std::vector<float>(4), ls::shape(1)));
}

// expect: lockstep::Model: the model reads one real-valued feature and one target
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/layers/dense.hpp"
#include "lockstep/losses/mean_squared_error.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
struct TwoFeatures {
  using fields = ls::Fields<ls::FieldKind{}, ls::FieldKind{},
                            ls::FieldKind{ls::FieldRole::target, ls::FieldType::real}>;
  ls::Shape shape(std::size_t = 0) const { return ls::shape(1); }
  std::optional<std::uint64_t> size() const { return 4; }
  ls::pipeline::Counter indices(ls::Pass) const { return ls::pipeline::Counter(4); }
  template <class T>
  void gather(ls::Pass, std::span<const ls::Item>, ls::Rows<T, fields>) const {}
};
int main() {
  using namespace ls::pipeline;
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, ls::SGD{}};
  model.fit(TwoFeatures{} | ls::batch(2));
}

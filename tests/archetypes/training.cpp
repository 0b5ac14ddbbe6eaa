#include "lockstep/training/model.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <memory>

#include "archetypes/archetypes.hpp"

namespace {

namespace ls = lockstep;
struct Net : ls::Sequential<ls::Input<1>, archetype::Scale> {};

}  // namespace

TEST_CASE("the requirements of the concepts suffice to train, evaluate and predict") {
  ls::Model model{Net{}, archetype::Strategy{}, archetype::Squares{}, archetype::Descent{},
                  archetype::Seen{}};
  CHECK(model.weights("scale/factor")[0] == 0.5f);
  const auto history = model.fit(archetype::Batches{}, archetype::Batches{},
                                 {.epochs = 20,
                                  .callbacks = {std::make_shared<archetype::Callback>()},
                                  .progress = ls::ProgressStyle::none});
  CHECK(history["seen"].back() == 4);
  CHECK(history["val_seen"].size() == 20);
  CHECK(history["loss"].back() < history["loss"].front());
  CHECK(std::abs(model.weights("scale/factor")[0] - 2) < 1e-3f);
  CHECK(model.evaluate(archetype::Batches{})["loss"] < 1e-5);
  const auto predictions = model.predict(archetype::Batches{});
  CHECK(std::abs(predictions.row(3)[0] - 6) < 1e-2f);
}

// Asks for features that the program may not include, and prints what happens.
#ifdef WITH_FEATURES
#include <lockstep/checkpoints.hpp>
#include <lockstep/trace.hpp>
#endif
#ifdef ELASTIC
#include <lockstep/cluster.hpp>
#endif
#include <lockstep/lockstep.hpp>
#include <lockstep/reference.hpp>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace ls = lockstep;

namespace {

struct Net : ls::Sequential<ls::Input<2>, ls::Dense<2>> {};

template <class Strategy = ls::OneDevice<ls::Reference<float>>>
int try_fit(const char* what, const ls::FitOptions& options, const Strategy& strategy = {}) {
  int steps = 0;
  try {
    ls::Model model{Net{}, strategy, ls::SparseCategoricalCrossentropy{.from_logits = true},
                    ls::SGD{}};
    model.fit(ls::tensors(std::vector<float>(8, 0.5f), ls::shape(2), std::vector<std::int32_t>(4)) |
                  ls::batch(2),
              options);
    steps = static_cast<int>(model.steps());
    std::printf("%s: made, after %d steps\n", what, steps);
  } catch (const ls::Error& e) {
    std::printf("%s: %s\n", what, e.what());
  }
  return steps;
}

// Before main begins.
[[maybe_unused]] const int steps = try_fit(
    "checkpoint", {.checkpoint = {.directory = "run"}, .progress = ls::ProgressStyle::none});

}  // namespace

int main() {
#ifdef WITH_FEATURES
  try_fit("callbacks", {.callbacks = {ls::ModelCheckpoint{.filepath = "saved"},
                                      ls::Trace{.filename = "trace.json", .first_step = 0}},
                        .progress = ls::ProgressStyle::none});
#endif
#ifdef ELASTIC
  try_fit("elastic", {},
          ls::MultiWorkerMirrored<ls::Reference<float>>{
              .environment = [](const std::string& name) -> std::optional<std::string> {
                if (name == "LOCKSTEP_MIN_WORKERS") return "2";
                return std::nullopt;
              }});
#endif
}

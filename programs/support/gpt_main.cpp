// The main function of the gpt programs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "support/unit_main.hpp"

namespace {

/// The options of the unit with the shortest context that is long enough.
std::string options_of(const support::Options& o) {
  const auto named = [&](int context) {
    return fmt::format("--size {} --context {} --style {} --optimizer {} --precision {}",
                       o.text.size, context, o.text.style, o.optimizer, o.precision);
  };
  const int context = o.text.context > 0      ? o.text.context
                      : o.text.size == "124m" ? 1024
                      : o.text.size == "10m"  ? 256
                                              : 64;
  for (const int built : {64, 256, 1024}) {
    const std::string name = named(built);
    const auto found = support::units().lower_bound(name);
    if (built >= context && found != support::units().end() && found->first.starts_with(name))
      return name;
  }
  return named(context);
}

}  // namespace

int main(int argc, char** argv) {
  return support::run_unit(
      {
          .description =
              "Trains a causal language model on a text, or on a generated one, and continues texts.",
          .epochs = 5,
          .batch = 32,
          .data =
              "file with a text, whose bytes are the tokens, or with 16-bit tokens (.bin); default: "
              "a generated text",
          .examples = "windows",
          .has_text = true,
      },
      argc, argv, options_of);
}

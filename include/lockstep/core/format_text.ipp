#pragma once

#include "lockstep/core/format_text.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/core/fmt_core.hpp"

namespace lockstep::detail {

std::string format_values(std::string_view text, const TextValue* values, std::size_t count) {
  using Arg = fmt::basic_format_arg<fmt::format_context>;
  std::vector<Arg> args;
  for (std::size_t i = 0; i < count; ++i)
    args.push_back(values[i].visit(
        [](auto value) -> Arg { return fmt::format_args(fmt::make_format_args(value)).get(0); }));
  try {
    return fmt::vformat(fmt::string_view(text.data(), text.size()),
                        fmt::format_args(args.data(), static_cast<int>(args.size())));
  } catch (const std::runtime_error&) {  // fmt::format_error, which core.h does not define
    std::string unformatted(text);
    for (const Arg& arg : args) {
      unformatted += unformatted.size() == text.size() ? " (" : ", ";
      unformatted += fmt::vformat("{}", fmt::format_args(&arg, 1));
    }
    return unformatted + ")";
  }
}

}  // namespace lockstep::detail

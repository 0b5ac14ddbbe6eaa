/// \file
/// fmt formatters for shapes, logs, histories, errors and descriptions of a job. Opt-in: no other
/// header includes this one, since <fmt/format.h> takes long to compile. Each value is formatted as
/// a string, so width, alignment and fill work:
/// \code
///   fmt::print("{:>14} {}\n", model.parameters()[0].shape, model.fit(train, {.epochs = 3}));
///   try {
///     train_all();
///   } catch (const lockstep::Error& error) {
///     std::fputs(fmt::format("{}\n", error).c_str(), stderr);
///   }
/// \endcode
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/core/fmt_core.hpp"

#include <fmt/format.h>

#include <concepts>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

#include "lockstep/cluster/description/resolved_cluster.hpp"
#include "lockstep/cluster/description/spec.hpp"
#include "lockstep/core/add_item.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/training/history.hpp"

namespace lockstep::detail {

inline std::string formatted(const Shape& shape) { return to_string(shape); }

inline std::string formatted(const Logs& logs) {
  std::string text;
  for (const auto& [name, value] : logs) add_item(text, ", ", fmt::format("{}: {}", name, value));
  return text;
}

inline std::string formatted(const History& history) {
  std::string text;
  for (const std::string& name : history.names()) {
    std::string values;
    for (const double value : history[name]) add_item(values, ", ", fmt::format("{}", value));
    add_item(text, ", ", fmt::format("{}: [{}]", name, values));
  }
  return text;
}

inline std::string formatted(const ClusterSpec& cluster) { return cluster.json(); }

inline std::string formatted(const ResolvedCluster& job) {
  return fmt::format("{} of {}{}{}", job.rank ? job.name(*job.rank) : "an automatic rank",
                     job.world_size, job.source.empty() ? "" : " by ", job.source);
}

inline std::string_view formatted(const Error& error) { return error.what(); }

/// Formats a value as a string.
template <class T>
struct TextFormatter : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const T& value, Context& context) const {
    return fmt::formatter<std::string_view>::format(formatted(value), context);
  }
};

}  // namespace lockstep::detail

namespace fmt {

/// "(28, 28, 1)".
template <>
struct formatter<lockstep::Shape> : lockstep::detail::TextFormatter<lockstep::Shape> {};

/// "loss: 0.25, accuracy: 0.9".
template <>
struct formatter<lockstep::Logs> : lockstep::detail::TextFormatter<lockstep::Logs> {};

/// "loss: [0.5, 0.25], val_loss: [0.75, 0.5]".
template <>
struct formatter<lockstep::History> : lockstep::detail::TextFormatter<lockstep::History> {};

/// The cluster as JSON, as in TF_CONFIG.
template <>
struct formatter<lockstep::ClusterSpec> : lockstep::detail::TextFormatter<lockstep::ClusterSpec> {};

/// "rank 1 (worker:1, 10.0.0.2:12345) of 4 by TF_CONFIG".
template <>
struct formatter<lockstep::ResolvedCluster>
    : lockstep::detail::TextFormatter<lockstep::ResolvedCluster> {};

/// The message of any lockstep error. The third template argument is that of the formatter for
/// exceptions in <fmt/std.h>; this partial specialization is more constrained and therefore
/// preferred.
template <class E>
  requires std::derived_from<E, lockstep::Error>
struct formatter<E, char, typename std::enable_if<std::is_base_of<std::exception, E>::value>::type>
    : lockstep::detail::TextFormatter<lockstep::Error> {};

}  // namespace fmt

#pragma once

#include "lockstep/tensorboard/event_writer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/tensorboard/histogram_buckets.hpp"
#include "lockstep/tensorboard/png.hpp"

namespace lockstep {

namespace detail {
[[gnu::cold]] inline const EventWriterOptions& checked(const EventWriterOptions& options) {
  if (!(options.flush_seconds >= 0))
    throw UsageError("event writer: flush_seconds is {}; it must be at least 0",
                     options.flush_seconds);
  if (options.max_queue == 0)
    throw UsageError("event writer: max_queue is 0; it must be at least 1");
  return options;
}
}  // namespace detail

EventWriter::EventWriter(const std::string& folder, const EventWriterOptions& options)
    : options_(detail::checked(options)), file_(folder, options.flush_seconds, options.max_queue) {}

void EventWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  const Scalar scalar{tag, value};
  add_scalars({&scalar, 1}, step);
}

void EventWriter::add_scalars(std::span<const Scalar> scalars, std::int64_t step) {
  for (const Scalar& s : scalars)
    if (options_.tensor_scalars)
      detail::append_tensor_scalar(summary_, s.tag, s.value);
    else
      detail::append_scalar(summary_, s.tag, s.value);
  append_summary(step);
}

void EventWriter::add_histogram(std::string_view tag, std::span<const float> values,
                                std::int64_t step) {
  detail::append_histogram(summary_, tag, histogram_of(values));
  append_summary(step);
}

void EventWriter::add_images(std::string_view tag, const Shape& image,
                             std::span<const std::uint8_t> pixels, std::int64_t step) {
  if (pixels.empty() || image.size() == 0 || pixels.size() % image.size() != 0)
    throw UsageError("image: {} values are not a whole number of images of the shape {}",
                     pixels.size(), to_string(image));
  std::vector<std::string> png;
  for (; !pixels.empty(); pixels = pixels.subspan(image.size()))
    png.push_back(detail::encode_png(image, pixels.first(image.size())));
  detail::append_images(summary_, tag, image, png);
  append_summary(step);
}

void EventWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  detail::append_text(summary_, tag, text);
  append_summary(step);
}

void EventWriter::add_restart(std::int64_t step) {
  file_.append(detail::restart_event(detail::wall_time(), step));
}

void EventWriter::add_graph(std::span<const GraphNode> nodes) {
  file_.append(detail::graph_event(detail::wall_time(), nodes));
}

void EventWriter::begin_session(std::span<const HParam> hparams) {
  detail::append_session_start(summary_, hparams, detail::wall_time());
  append_summary(0);
}

void EventWriter::end_session(bool has_succeeded) {
  using detail::SessionStatus;
  detail::append_session_end(summary_,
                             has_succeeded ? SessionStatus::succeeded : SessionStatus::failed,
                             detail::wall_time());
  append_summary(0);
}

void EventWriter::append_summary(std::int64_t step) {
  file_.append(detail::summary_event(detail::wall_time(), step, summary_));
  summary_.clear();
}

}  // namespace lockstep

#pragma once

#include "lockstep/training/report/progress_bar.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"

namespace lockstep::detail {

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace lockstep::detail

namespace lockstep {

ProgressStyle resolve(ProgressStyle style, bool is_terminal) {
  if (style != ProgressStyle::automatic) return style;
  return is_terminal && !detail::is_set("CI") ? ProgressStyle::keras : ProgressStyle::plain;
}

std::optional<ProgressStyle> progress_style(std::string_view name) {
  for (const auto& [known, style] : {std::pair{"keras", ProgressStyle::keras},
                                     {"classic", ProgressStyle::classic},
                                     {"plain", ProgressStyle::plain},
                                     {"json", ProgressStyle::json},
                                     {"none", ProgressStyle::none}})
    if (name == known) return style;
  return std::nullopt;
}

ProgressBar::ProgressBar(ProgressStyle style, std::optional<std::uint64_t> target, bool is_terminal,
                         double start, bool has_colour)
    : style_(style),
      target_(target),
      is_terminal_(is_terminal),
      has_colour_(has_colour),
      start_(start) {}

std::string ProgressBar::update(std::uint64_t current, const Logs& logs, double now) {
  return draw(current, logs, now, false);
}

std::string ProgressBar::finish(std::uint64_t current, const Logs& logs, double now) {
  if (!target_) target_ = current;
  return draw(current, logs, now, true);
}

void ProgressBar::Line::add(std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    text += part;
    for (const char c : part) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }
}

void ProgressBar::add_coloured(Line& line, std::string_view code, std::string_view part) const {
  if (has_colour_) (line.text += "\x1b[") += code;
  line.add({part});
  if (has_colour_) line.text += "\x1b[0m";
}

std::string ProgressBar::draw(std::uint64_t current, const Logs& logs, double now, bool last) {
  if (style_ == ProgressStyle::plain && !last) return {};
  const double step_time = step_seconds(current, now);
  if (!last && drawn_ && now - *drawn_ < interval) return {};
  remember(logs);
  drawn_ = now;
  if (style_ == ProgressStyle::plain) return plain_line(current, step_time, now);

  Line line;
  if (style_ == ProgressStyle::keras)
    keras_line(line, current, step_time, now, last);
  else
    classic_line(line, current, step_time, now, last);
  add_values(line);
  // As Keras: backspaces over the last text, then padding with spaces if the new one is shorter.
  std::string text(is_terminal_ ? columns_ : 0, '\b');
  text += is_terminal_ ? '\r' : '\n';
  text += line.text;
  if (columns_ > line.columns) text.append(columns_ - line.columns, ' ');
  columns_ = line.columns;
  if (last) text += '\n';
  line_open_ = !last;
  return text;
}

double ProgressBar::step_seconds(std::uint64_t current, double now) {
  if (current == 0) return 0;
  const double result = after_first_ && current > 1
                            ? (now - *after_first_) / static_cast<double>(current - 1)
                            : (now - start_) / static_cast<double>(current);
  if (current == 1) after_first_ = now;
  return result;
}

void ProgressBar::remember(const Logs& logs) {
  const std::size_t known = values_.size();
  for (std::pair<std::string_view, double> entry : logs) {
    std::size_t at = 0;
    while (at < values_.size() && values_[at].first != entry.first) ++at;
    if (at < values_.size()) {
      values_[at].second = entry.second;
      continue;
    }
    values_.emplace_back(entry.first, entry.second);
    for (; style_ != ProgressStyle::classic && at > known && entry.first < values_[at - 1].first;
         --at)
      std::swap(values_[at - 1], values_[at]);
  }
}

bool ProgressBar::has_target() const { return target_ && *target_ > 0; }

std::string ProgressBar::count(std::uint64_t current) const {
  const std::string target = std::to_string(*target_);
  return format_text("{:{}}/{}", current, target.size(), target);
}

std::size_t ProgressBar::filled(std::uint64_t current, std::size_t width) const {
  const double share = static_cast<double>(current) / static_cast<double>(*target_);
  return static_cast<std::size_t>(static_cast<double>(width) * std::min(share, 1.0));
}

std::string ProgressBar::unknown(std::uint64_t current) {
  return format_text("{:7}/Unknown", current);
}

std::string ProgressBar::eta(std::uint64_t current, double step_time) const {
  return detail::format_eta(step_time *
                            (static_cast<double>(*target_) - static_cast<double>(current)));
}

std::string ProgressBar::repeat(std::string_view part, std::size_t times) {
  std::string text;
  while (times-- > 0) text += part;
  return text;
}

void ProgressBar::keras_line(Line& line, std::uint64_t current, double step_time, double now,
                             bool last) {
  constexpr std::size_t width = 20;
  if (has_target()) {
    add_coloured(line, "1m", count(current));
    line.add({" "});
    const std::size_t done = filled(current, width);
    if (done > 0) add_coloured(line, "32m", repeat("━", done));
    add_coloured(line, "37m", repeat(has_colour_ ? "━" : "─", width - done));
  } else {
    line.add({unknown(current)});
  }
  line.add({" "});
  add_coloured(
      line, "1m",
      has_target() && !last ? eta(current, step_time) : format_text("{:.0f}s", now - start_));
  line.add({" ", detail::format_step_time(step_time)});
}

void ProgressBar::classic_line(Line& line, std::uint64_t current, double step_time, double now,
                               bool last) {
  constexpr std::size_t width = 30;
  if (has_target()) {
    const std::size_t done = filled(current, width);
    std::string bar(done, '=');
    if (done > 0 && current < *target_) bar.back() = '>';
    line.add({count(current), " [", bar, std::string(width - done, '.'), "]"});
  } else {
    line.add({unknown(current)});
  }
  if (has_target() && !last)
    line.add({" - ETA: ", eta(current, step_time)});
  else
    line.add(
        {" - ", format_text("{:.0f}s", now - start_), " ", detail::format_step_time(step_time)});
}

std::string ProgressBar::plain_line(std::uint64_t current, double step_time, double now) {
  if (!has_target()) return {};
  Line line;
  line.add({count(current), " - ", format_text("{:.0f}s", now - start_), " - ",
            detail::format_step_time(step_time)});
  add_values(line);
  line.add({"\n"});
  return std::move(line.text);
}

void ProgressBar::add_values(Line& line) const {
  for (const auto& [name, value] : values_)
    line.add({" - ", name, ": ", detail::format_metric(value)});
}

}  // namespace lockstep

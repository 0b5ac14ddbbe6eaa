/// \file
/// The figures of the GPU programs as JSON for tools/gpu/gpu_record.py: {"gpu", "figures":
/// [{"group", "name", "unit", "value"}]}. A missing value is null, with a "reason". Invariant: the
/// file is complete at every moment and has all figures so far, so a program that hangs or is
/// killed loses only the figures that it has not reached.
#pragma once

#include <fmt/format.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.hpp>

namespace gpu_figures {

/// One number, or the reason why it is missing.
struct Figure {
  std::string group, name, unit;
  double value = 0;
  std::string reason{};
};

inline std::string json_text(std::string_view text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    all += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return all + "\"";
}

/// Replaces the file. \throws FileError if it cannot be written.
inline void write(const std::string& path, const std::string& gpu,
                  const std::vector<Figure>& figures) {
  std::string text = fmt::format("{{\"gpu\": {},\n \"figures\": [", json_text(gpu));
  const char* separator = "\n";
  for (const Figure& f : figures) {
    text += fmt::format("{}  {{\"group\": {}, \"name\": {}, \"unit\": {}, \"value\": ", separator,
                        json_text(f.group), json_text(f.name), json_text(f.unit));
    text += f.reason.empty() ? fmt::format("{:.6g}}}", f.value)
                             : fmt::format("null, \"reason\": {}}}", json_text(f.reason));
    separator = ",\n";
  }
  text += "\n]}\n";
  const std::string part = path + ".part";
  std::FILE* const file = std::fopen(part.c_str(), "w");
  if (file != nullptr) {
    const bool is_whole = std::fputs(text.c_str(), file) >= 0;
    if (std::fclose(file) == 0 && is_whole && std::rename(part.c_str(), path.c_str()) == 0) return;
  }
  throw lockstep::FileError(path, "cannot be written: {}", std::strerror(errno));
}

/// Prints each figure and rewrites the file as soon as there is a new one.
class Report {
 public:
  /// An empty `path` writes no file.
  Report(std::string gpu, std::string path) : gpu_(std::move(gpu)), path_(std::move(path)) {}

  void add(Figure f) {
    fmt::print("{:9}  {:60} ", f.group, f.name);
    if (f.reason.empty())
      fmt::print("{:10.2f} {}\n", f.value, f.unit);
    else
      fmt::print("         - {}\n", f.reason);
    std::fflush(stdout);
    figures_.push_back(std::move(f));
    if (!path_.empty()) write(path_, gpu_, figures_);
  }

  /// Adds the figures of `body()`. If the GPU fails, the rest of the group is one figure without a
  /// value.
  template <class F>
  void group(const std::string& name, const F& body) {
    try {
      body();
    } catch (const lockstep::DeviceError& error) {
      if (failure_.empty()) failure_ = name + ": " + error.what();
      add({name, "the rest", "", 0, error.what()});
    }
  }

  const std::vector<Figure>& figures() const { return figures_; }
  /// The failure of the first group that failed; empty if none did.
  const std::string& failure() const { return failure_; }

 private:
  std::string gpu_, path_, failure_;
  std::vector<Figure> figures_;
};

}  // namespace gpu_figures

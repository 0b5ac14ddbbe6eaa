// The only source that includes CLI11 and the JSON library, which take longer to compile than a network.
#include "support/program.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/core/error.hpp>
#include <lockstep/files/atomic_file.hpp>
#include <lockstep/training/run_main.hpp>

#include "support/command_line.hpp"
#include "support/report_file.hpp"

namespace support {

namespace {

/// Whether both paths are given and name one file, symbolic links resolved.
bool same_file(const std::optional<std::string>& a, const std::optional<std::string>& b) {
  if (!a || !b) return false;
  namespace fs = std::filesystem;
  const auto whole = [](const std::string& path) {
    std::error_code code;
    auto resolved = fs::weakly_canonical(fs::absolute(path, code), code);
    return code ? fs::path(path).lexically_normal() : resolved;
  };
  return whole(*a) == whole(*b);
}

/// \throws CLI::ParseError if one file would overwrite another. Only --save may overwrite --init, and
/// a report replaces the architecture: command lines with w.safetensors and w.json are older.
void check_files_differ(Options& options) {
  std::optional<std::string> architecture;
  if (options.save) architecture = architecture_path(*options.save);
  if (same_file(architecture, options.report)) {
    architecture.reset();
    options.saves_architecture = false;
  }
  const std::array<std::pair<const char*, const std::optional<std::string>&>, 7> files{
      {{"--init", options.init},
       {"--save", options.save},
       {"the architecture of --save", architecture},
       {"--export-onnx", options.export_onnx},
       {"--report", options.report},
       {"--profile", options.profile},
       {"--trace", options.trace}}};
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t k = i == 0 ? 2 : i + 1; k < files.size(); ++k)
      if (same_file(files[i].second, files[k].second))
        throw CLI::ValidationError(
            fmt::format("{} and {}", files[i].first, files[k].first),
            fmt::format("both name the file {}; use two files", *files[k].second));
}

/// Writes the text of a language model to stdout: as it is, or as an event of --progress json.
void print_generated(const std::string& text, bool as_json) {
  const std::string line =
      as_json ? to_text({{"event", "generated"}, {"text", text}}) : text + '\n';
  std::fwrite(line.data(), 1, line.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

int run(const Program& program, int argc, char** argv, const std::function<void(Job&)>& body) {
  lockstep::detail::ignore_file_size_signal();
  Options options;
  try {
    options = parse(program, argc, argv);
    check_files_differ(options);
  } catch (const CLI::Success&) {  // --help, --version
    return 0;
  } catch (const CLI::ParseError& error) {
    std::fputs(fmt::format("{}: {}\n", program.name, error.what()).c_str(), stderr);
    return 2;
  }
  Report report{.program = program.name};
  const auto path = options.report;
  const std::size_t batch = options.batch;
  const bool is_json = options.progress == lockstep::ProgressStyle::json;
  int code = 0;
  std::string error;
  try {
    if (path) lockstep::check_writable(*path);
    Job job(program, std::move(options), report);
    body(job);
    if (job.signal() != 0) code = 128 + job.signal();
    if (report.generated) print_generated(*report.generated, is_json);
  } catch (const std::bad_alloc&) {
    code = 1;
    error = fmt::format("out of memory with a batch of {} examples; use a smaller --batch",
                        report.made ? report.made->batch : batch);
  } catch (...) {
    lockstep::ProgramFailure failure = lockstep::current_failure();
    code = failure.exit_code;
    error = std::move(failure.message);
  }
  if (!error.empty()) report.fail(error);
  try {
    // Exit code 2 means that nothing was started, so there is nothing to report.
    if (path && report.is_requested && code != 2) write(report, *path);
  } catch (const std::exception& e) {
    if (code == 0) error = e.what();
    if (code == 0) code = 1;
  }
  // No rank after a lost peer: the message names the peer, and is the same on all survivors.
  const std::string rank = code == 1 ? report.rank_prefix() : "";
  if (!error.empty())
    std::fputs(fmt::format("{}: {}{}\n", program.name, rank, error).c_str(), stderr);
  return code;
}

}  // namespace support

/// \file
/// `lockstep-run --check`: the command of lockstep-doctor for a program that is to be trained.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep_run {

/// The value of the option `name`, in `--name VALUE` or `--name=VALUE`, of a command.
inline std::optional<std::string> option_value(const std::vector<std::string>& command,
                                               const std::string& name) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (command[i] == name && i + 1 < command.size()) return command[i + 1];
    if (command[i].starts_with(name + "=")) return command[i].substr(name.size() + 1);
  }
  return std::nullopt;
}

/// Checks what the program would use: its data set (--data), where it saves (--checkpoint, --save), and
/// its own file. A command that is lockstep-doctor itself stays. `has_servers`: so has the job.
inline std::vector<std::string> doctor_command(const std::vector<std::string>& program,
                                               bool has_servers) {
  namespace fs = std::filesystem;
  constexpr const char* doctor = "lockstep-doctor";
  if (!program.empty() && fs::path(program[0]).filename() == doctor) return program;
  std::vector<std::string> command{doctor};
  if (has_servers) command.emplace_back("--ps");
  const auto add = [&](const char* option, const std::string& value) {
    command.emplace_back(option);
    command.push_back(value);
  };
  if (const auto data = option_value(program, "--data")) add("--data", *data);
  if (const auto folder = option_value(program, "--checkpoint"))
    add("--save", *folder);
  else if (const auto file = option_value(program, "--save"))
    add("--save", fs::path(*file).has_parent_path() ? fs::path(*file).parent_path().string() : ".");
  // A bare name may be in another folder of PATH on each host.
  if (!program.empty() && program[0].find('/') != std::string::npos) add("--program", program[0]);
  return command;
}

/// How long the workers of a check wait for each other, and whether an option must pass it to the doctor.
struct CheckWait {
  double seconds = 3;  ///< the doctor's own default
  bool is_added = false;
};

/// `variable` is the value of LOCKSTEP_RENDEZVOUS_TIMEOUT. Workers on other hosts are started by a
/// remote shell, which takes longer than the doctor's default.
inline CheckWait check_wait(const std::vector<std::string>& doctor,
                            const std::optional<std::string>& variable, bool spans_hosts) {
  constexpr double with_hosts = 15;
  const auto option = option_value(doctor, "--wait");
  if (!option && !variable) return spans_hosts ? CheckWait{with_hosts, true} : CheckWait{};
  return {std::clamp(std::atof((option ? *option : *variable).c_str()), 0.0, 3600.0), false};
}

}  // namespace lockstep_run

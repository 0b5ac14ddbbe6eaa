#include "support/job.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include <lockstep/checkpoints.hpp>
#include <lockstep/core/error.hpp>
#include <lockstep/core/log.hpp>
#include <lockstep/files/atomic_file.hpp>
#include <lockstep/files/safetensors.hpp>
#include <lockstep/tensorboard/tensorboard_callback.hpp>
#include <lockstep/trace.hpp>
#include <lockstep/training/report/progress.hpp>

namespace support {

namespace {

/// Makes signals end the process at once. Used until a job of several processes trains: until then
/// the process waits for others, and has nothing to save.
void end_by_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (std::signal(signal, [](int n) { ::_exit(128 + n); }) == SIG_IGN)
      std::signal(signal, SIG_IGN);  // nohup, or a shell's `&`
}

/// Logs a line when training begins, so that an earlier failure prints only its error.
class NoteAtStart : public lockstep::Callback {
 public:
  explicit NoteAtStart(std::string note) : note_(std::move(note)) {}
  void on_train_begin(const lockstep::Logs&) override {
    lockstep::log(lockstep::LogLevel::info, note_);
  }

 private:
  std::string note_;
};

}  // namespace

Job::Job(const Program& program, Options options, Report& report)
    : has_optimizers_(program.has_optimizers),
      has_depths_(program.has_depths),
      options_(std::move(options)),
      report_(report) {
  if (program.has_workers)
    end_by_signals();
  else
    handle_signals();
}

void Job::handle_signals() {
  if (!stop_) stop_.emplace();
}

void Job::check_float32(const std::string& path) {
  const auto file = lockstep::SafetensorsFile::read(path);
  for (const lockstep::SafetensorsTensor& tensor : file.tensors())
    if (tensor.dtype != lockstep::DType::float32)
      throw lockstep::WeightsError(path,
                                   "tensor '{}' is {}, but --init reads F32; convert the file",
                                   tensor.name, tensor.dtype_name);
}

void Job::add(std::shared_ptr<lockstep::Callback> callback) {
  callbacks_.push_back(std::move(callback));
}

void Job::note_drawn(bool is_chief, const std::string& drawn, const std::string& real) {
  if (is_chief && options_.progress != lockstep::ProgressStyle::none)
    add(std::make_shared<NoteAtStart>("training on " + drawn + "; --data names " + real));
}

void Job::run(bool is_chief, lockstep::FunctionRef<void(const lockstep::FitOptions&)> fit,
              lockstep::FunctionRef<void(const Recorder&)> finish) {
  if (options_.save && is_chief) {
    lockstep::check_writable(*options_.save);
    if (options_.saves_architecture) lockstep::check_writable(architecture_path(*options_.save));
  }
  if (options_.export_onnx && is_chief) lockstep::check_writable(*options_.export_onnx);
  if (options_.profile) lockstep::check_writable(*options_.profile);
  auto recorder = std::make_shared<Recorder>();
  lockstep::FitOptions options{.epochs = options_.epochs,
                               .steps_per_epoch = options_.steps_per_epoch,
                               .steps_per_execution = options_.steps_per_execution,
                               .verify_every = options_.verify_every,
                               .callbacks = {recorder},
                               .checkpoint = {.directory = options_.checkpoint.value_or(""),
                                              .every = options_.checkpoint_every,
                                              .resume = options_.resume},
                               .stop = stop_->token(),
                               .progress = options_.progress};
  if (options_.tensorboard) options.callbacks.push_back(tensorboard());
  if (options_.trace) options.callbacks.push_back(lockstep::Trace{.filename = *options_.trace});
  options.callbacks.insert(options.callbacks.end(), callbacks_.begin(), callbacks_.end());
  if (!is_chief && options_.progress == lockstep::ProgressStyle::json)
    options.callbacks.push_back(std::make_shared<lockstep::Progress>(options_.progress));
  try {
    fit(options);
  } catch (const lockstep::UsageError& e) {
    finish(*recorder);
    // Exit code 2 (UsageError) means that nothing was started.
    if (recorder->has_begun) throw lockstep::Error(e.what());
    throw;
  } catch (...) {
    finish(*recorder);
    throw;
  }
  finish(*recorder);
}

std::shared_ptr<lockstep::Callback> Job::tensorboard() const {
  lockstep::TensorBoard board{.log_dir = *options_.tensorboard,
                              .write_steps_per_second = true,
                              .update_freq = "batch",
                              .hparams = {{"batch", options_.batch},
                                          {"learning_rate", options_.learning_rate},
                                          {"precision", options_.precision},
                                          {"seed", options_.seed}}};
  if (has_optimizers_) board.hparams.push_back({"optimizer", options_.optimizer});
  if (has_depths_) board.hparams.push_back({"depth", options_.depth});
  return board;
}

void Job::write_profile(const lockstep::Profile& profile, const std::string& path) {
  lockstep::AtomicFile file(path);
  file.write(to_json(profile));
  file.commit();
  std::fputs(to_string(profile).c_str(), stderr);
}

}  // namespace support

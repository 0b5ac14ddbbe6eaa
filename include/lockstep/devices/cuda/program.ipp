#pragma once

#include "lockstep/devices/cuda/program.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>
#include <system_error>

#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/sha256.hpp"
#include "lockstep/core/process/file_descriptor.hpp"
#include "lockstep/devices/cuda/libraries/nvrtc.hpp"
#include "lockstep/devices/cuda/prelude.hpp"

namespace lockstep::detail::cuda {

std::string Define::line() const {
  if (!is_real_)
    return format_text("#define {} ({}{})\n", name_, whole_,
                       whole_ > std::numeric_limits<int>::max() ? "LL" : "");
  if (real_ - real_ == 0) return hexadecimal();
  return format_text("#define {} (({}1.0f / 0.0f))\n", name_, real_ > 0 ? "" : "-");
}

std::string Define::hexadecimal() const {
  std::array<char, 96> digits{};
  const double size = real_ < 0 ? -real_ : real_;
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), size, std::chars_format::hex);
  return format_text("#define {} ({}0x{}f)\n", name_, std::signbit(real_) ? "-" : "",
                     std::string(digits.data(), end.ptr));
}

KernelCache::KernelCache(const char* kind) : kind_(kind) {
  if (const char* const own = std::getenv("LOCKSTEP_KERNEL_CACHE")) {
    folder_ = own;
  } else if (const char* const cache = std::getenv("XDG_CACHE_HOME"); cache && *cache) {
    folder_ = format_text("{}/lockstep", cache);
  } else if (const char* const home = std::getenv("HOME"); home && *home) {
    folder_ = format_text("{}/.cache/lockstep", home);
  }
}

std::optional<std::string> KernelCache::find(const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file) return std::nullopt;
  std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (all.size() < digest_size) return std::nullopt;
  std::string content = all.substr(digest_size);
  if (all.compare(0, digest_size, digest(content)) != 0) return std::nullopt;  // damaged
  return content;
}

void KernelCache::store(const std::string& key, const std::string& content) const {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  // Unique per process, so that two processes that compile the same kernel do not mix their bytes.
  const std::string part = format_text("{}/{}.part.{}", folder_, key, ::getpid());
  std::filesystem::remove(part, error);  // of a process that was killed, or a link
  FileDescriptor file(::open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.is_open()) return;
  std::string all = digest(content);
  all += content;
  std::string_view rest = all;
  for (ssize_t n = 0; !rest.empty() && n >= 0;) {
    n = ::write(file.number(), rest.data(), rest.size());
    if (n > 0) rest.remove_prefix(static_cast<std::size_t>(n));
    if (n < 0 && errno == EINTR) n = 0;
  }
  if (!file.close() || !rest.empty()) {
    std::filesystem::remove(part, error);
    return;
  }
  std::filesystem::rename(part, path_of(key), error);
  if (error) std::filesystem::remove(part, error);
}

std::string KernelCache::digest(std::string_view content) {
  return sha256_hex(std::as_bytes(std::span(content)));
}

std::string KernelCache::path_of(const std::string& key) const {
  return format_text("{}/{}{}", folder_, key, kind_);
}

std::string whole_text(const Source& source, std::span<const Define> defines) {
  std::string all;
  for (const Define& define : defines) all += define.line();
  return all + prelude + source.functions + source.text;
}

/// Compiles to machine code for one architecture. \throws DeviceError with the compiler's log.
inline std::string compile(const Source& source, const std::string& all,
                           const std::string& architecture) {
  nvrtcProgram program = nullptr;
  check(nvrtc().nvrtcCreateProgram(&program, all.c_str(), source.name, 0, nullptr, nullptr),
        "creating a program");
  // Destroys the program on every path.
  struct Owner {
    nvrtcProgram* program;
    ~Owner() { nvrtc().nvrtcDestroyProgram(program); }
  } owner{&program};
  const std::string option = "--gpu-architecture=" + architecture;
  const std::array options{option.c_str(), "--std=c++17"};
  const nvrtcResult result =
      nvrtc().nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  if (result != NVRTC_SUCCESS) {
    std::size_t size = 0;
    std::string compiler_log;
    if (nvrtc().nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS && size > 1) {
      compiler_log.resize(size);
      nvrtc().nvrtcGetProgramLog(program, compiler_log.data());
      compiler_log.resize(std::min<std::size_t>(size - 1, 1000));
    }
    // The log's first 1000 characters suffice: the first error is the cause.
    throw DeviceError("cuda: the kernels of {} do not compile for {}: {}: {}", source.name,
                      architecture, nvrtc().nvrtcGetErrorString(result), compiler_log);
  }
  std::size_t size = 0;
  check(nvrtc().nvrtcGetCUBINSize(program, &size), "reading a program's size");
  std::string code(size, '\0');
  check(nvrtc().nvrtcGetCUBIN(program, code.data()), "reading a program's code");
  return code;
}

/// The architecture that NVRTC compiles for. Compute capability 9.0 gets `sm_90a`, which adds
/// instructions that only Hopper has; machine code does not run on later GPUs anyway.
inline std::string architecture_of(int capability) {
  return format_text("sm_{}{}", capability, capability == 90 ? "a" : "");
}

Programs::Programs(int capability) : architecture_(architecture_of(capability)) {}

Programs::~Programs() {
  for (const Loaded& m : loaded_) driver().cuModuleUnload(m.module);
}

CUfunction Programs::find(const Source& source, const char* entry,
                          std::span<const Define> defines) {
  // Linear searches, because a model has few modules and a module few entries.
  Loaded& m = module_of(source, defines);
  for (const Entry& e : m.entries)
    if (e.name == entry) return e.function;
  return add_entry(m, entry);
}

Programs::Loaded& Programs::module_of(const Source& source, std::span<const Define> defines) {
  for (Loaded& m : loaded_)
    // Texts are constants, so their addresses identify them.
    if (m.text == source.text && m.functions == source.functions &&
        std::equal(m.defines.begin(), m.defines.end(), defines.begin(), defines.end()))
      return m;
  return load(source, defines);
}

CUfunction Programs::add_entry(Loaded& m, const char* name) {
  CUfunction function = nullptr;
  check(driver().cuModuleGetFunction(&function, m.module, name), "finding a kernel");
  m.entries.push_back({name, function});
  return function;
}

Programs::Loaded& Programs::load(const Source& source, std::span<const Define> defines) {
  const std::string all = whole_text(source, defines);
  int major = 0, minor = 0;
  check(nvrtc().nvrtcVersion(&major, &minor), "reading NVRTC's version");
  // Everything that determines the machine code: text, architecture, compiler version, name.
  const std::string key = KernelCache::digest(
      format_text("{}\n{} {}.{} {}", all, architecture_, major, minor, source.name));
  std::optional<std::string> code = cache_.find(key);
  if (!code) {
    code = compile(source, all, architecture_);
    cache_.store(key, *code);
  }
  loaded_.push_back({source.text, source.functions, {defines.begin(), defines.end()}, nullptr, {}});
  // Appended first, so that a module is never loaded without an owner.
  if (const CUresult loaded = driver().cuModuleLoadData(&loaded_.back().module, code->data());
      loaded != CUDA_SUCCESS) {
    loaded_.pop_back();
    refuse(loaded, "loading a kernel");
  }
  return loaded_.back();
}

}  // namespace lockstep::detail::cuda

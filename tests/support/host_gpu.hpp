/// \file
/// A GPU for tests on machines without one: memory of the host, kernels' texts compiled as C++, the
/// grid run in loops. It computes our own kernels; cuDNN and cuBLASLt are missing. Each text is
/// compiled by the real NVRTC as well, for sm_80, sm_90a and sm_100, where NVRTC can be loaded, and
/// must not spill registers.
///
/// $LOCKSTEP_HOST_GPU_STORE names a folder that keeps what the compilers made of each text, so that
/// tests with empty kernel caches also run on machines without a compiler.
///
/// Memory of this GPU can be touched in a kernel or a copy only: the host's touch is a segmentation
/// fault.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/sha256.hpp"
#include "lockstep/devices/cuda/libraries/cublaslt.hpp"
#include "lockstep/devices/cuda/libraries/cudnn.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"
#include "lockstep/devices/cuda/libraries/nvrtc.hpp"
#include "support/host_gpu_prologue.hpp"
#include "support/host_grid.hpp"

namespace testing {

/// Memory that only the GPU may touch.
class HostGpuMemory {
 public:
  static constexpr std::size_t room = std::size_t{4} << 30;
  HostGpuMemory();
  std::size_t limit = room;  ///< bytes that may be taken, with a page each more
  void* take(std::size_t bytes);
  bool give(void* p);
  std::size_t used() const { return used_.size(); }
  std::size_t free() const;
  /// While it lives, this thread is the GPU.
  class Open {
   public:
    explicit Open(HostGpuMemory& memory);
    ~Open();

   private:
    HostGpuMemory& memory_;
  };

 private:
  void protect(int access);
  char* base_;
  std::map<std::size_t, std::size_t> free_, used_;
};

/// The tables of the driver and of NVRTC. Make one object; while it lives, lockstep finds this GPU.
class HostGpu {
 public:
  using Driver = lockstep::detail::cuda::Driver;
  using Nvrtc = lockstep::detail::cuda::Nvrtc;

  HostGpu();
  ~HostGpu();

  HostGpuMemory memory;
  std::size_t launches = 0, graph_launches = 0, compiled = 0, modules = 0;
  std::size_t copied_in = 0;  ///< bytes, from the host
  std::vector<float> times;   ///< what is measured next; then 1
  std::string faulty;         ///< the kernel of this name fails, and then all that follows
  /// A call of a library: done when a kernel would be, with the memory open, and part of a graph.
  static void call(std::function<void()> run);

 private:
  struct Call {
    std::function<void()> run;
    // A kernel's, so that a graph may get other arguments.
    const HostFunction* function = nullptr;
    HostIndex blocks{}, threads{};
    std::vector<std::vector<char>> arguments;
  };
  using Graph = std::vector<std::shared_ptr<Call>>;
  struct Program {
    std::string text, name, code, log;
  };
  struct Module {
    void* library = nullptr;
    std::map<std::string, HostFunction> functions;
    std::string text;
  };

  class Store;

  static inline HostGpu* instance = nullptr;

  static void say(Call call);
  static void execute(Call& call);
  static CUresult error();
  static void copy_arguments(Call& call, void** args);

  static Driver driver_table();

  // The code of a program: the size of a shared library, its bytes, and the text.
  static CUresult load(CUmodule* m, const void* data);

  static Nvrtc nvrtc_table();

  static std::string read(const std::string& path);

  static bool compile_for_host(Program& program);

  /// Whether no specialisation of this text was compiled before, by this process or, in a cache's
  /// folder, by others.
  static constexpr const char* gpu_architectures[] = {"sm_80", "sm_90a", "sm_100"};
  static std::string text_marker(const std::string& text);
  static inline std::set<std::string> seen_texts;
  static bool is_first_of_its_text(const std::string& text);
  static void forget_text(const std::string& text);

  /// By the real NVRTC, where there is one.
  static bool compile_for_gpus(Program& program);

  static inline thread_local int contexts = 0;
  static inline thread_local bool capturing = false;
  static inline thread_local Graph captured;
  static inline thread_local CUgraphNode last_node = nullptr;
  std::mutex mutex_;  // one call at a time, whoever makes it
  CUresult error_ = CUDA_SUCCESS;
  Driver driver_;
  Nvrtc nvrtc_;
  lockstep::detail::cuda::EntryPoints<Driver>::Override drivers_;
  lockstep::detail::cuda::EntryPoints<Nvrtc>::Override nvrtcs_;
  lockstep::detail::cuda::EntryPoints<lockstep::detail::cuda::Cudnn>::Override no_cudnn_;
  lockstep::detail::cuda::EntryPoints<lockstep::detail::cuda::CublasLt>::Override no_cublaslt_;
};

}  // namespace testing

/// \file
/// A GPU emulated on the host, for tests on machines without one. It replaces the tables of the
/// driver and of NVRTC:
///
///     kernel text --nvrtcCompileProgram--> g++ -shared, and the real NVRTC, if present
///     cuModuleLoadData ------------------> dlopen
///     cuLaunchKernel --------------------> loops over blocks and threads (HostBlock), synchronous
///     stream capture, graphs ------------> list of calls
///
/// lockstep's own kernels compute; cuDNN and cuBLASLt are missing. Where the real NVRTC can be
/// loaded, each text must also compile for sm_80, sm_90a and sm_100 without spilling registers.
///
/// $LOCKSTEP_HOST_GPU_STORE names a folder that caches the compilers' output, so that tests with
/// empty kernel caches also run on machines without a compiler.
///
/// Memory of this GPU is accessible only within a kernel or a copy; any other access by the host is
/// a segmentation fault.
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

#include "lockstep/core/numbers/sha256.hpp"
#include "lockstep/devices/cuda/libraries/cublaslt.hpp"
#include "lockstep/devices/cuda/libraries/cudnn.hpp"
#include "lockstep/devices/cuda/libraries/driver.hpp"
#include "lockstep/devices/cuda/libraries/nvrtc.hpp"
#include "support/host_gpu_prologue.hpp"
#include "support/host_grid.hpp"

namespace testing {

/// Memory that only the emulated GPU may access.
class HostGpuMemory {
 public:
  static constexpr std::size_t capacity = std::size_t{4} << 30;
  HostGpuMemory();
  std::size_t limit = capacity;  ///< bytes that can be allocated, including a guard page each
  void* allocate(std::size_t bytes);
  bool release(void* p);
  std::size_t used() const { return used_.size(); }
  std::size_t free() const;
  /// Scope in which the memory is accessible, i.e. the calling thread acts as the GPU.
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

/// Replaces the driver and NVRTC for its lifetime. Construct at most one at a time.
class HostGpu {
 public:
  using Driver = lockstep::detail::cuda::Driver;
  using Nvrtc = lockstep::detail::cuda::Nvrtc;

  HostGpu();
  ~HostGpu();

  HostGpuMemory memory;
  std::size_t launches = 0, graph_launches = 0, compiled = 0, modules = 0;
  std::size_t copied_in = 0;  ///< bytes copied from the host
  std::vector<float> times;   ///< results of the next time measurements, in ms; then 1
  std::string faulty;         ///< the kernel of this name fails, and so does every later call
  /// Runs a library call like a kernel: in stream order, with memory accessible, and captured.
  static void call(std::function<void()> run);

 private:
  struct Call {
    std::function<void()> run;
    // For kernels: copies, so that the arguments of a graph node can be replaced.
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

  static void enqueue(Call call);
  static void execute(Call& call);
  static void execute_locked(Call& call);
  static CUresult error();
  static void copy_arguments(Call& call, void** args);

  static Driver driver_table();

  // Layout of a program's code: size of a shared library, its bytes, and the list of kernels.
  static CUresult load(CUmodule* m, const void* data);

  static Nvrtc nvrtc_table();

  static std::string read(const std::string& path);

  static bool compile_for_host(Program& program);

  /// A text counts as seen once any specialization of it has been compiled, by this process or, in
  /// a shared cache folder, by another.
  static constexpr const char* gpu_architectures[] = {"sm_80", "sm_90a", "sm_100"};
  static std::string text_marker(const std::string& text);
  static inline std::set<std::string> seen_texts;
  static bool is_first_of_its_text(const std::string& text);
  static void forget_text(const std::string& text);

  /// Compiles with the real NVRTC, if present; false on an error or spilled registers.
  static bool compile_for_gpus(Program& program);

  static inline thread_local int contexts = 0;
  static inline thread_local bool capturing = false;
  static inline thread_local Graph captured;
  static inline thread_local CUgraphNode last_node = nullptr;
  std::mutex mutex_;  // serializes calls from all threads
  CUresult error_ = CUDA_SUCCESS;
  Driver driver_;
  Nvrtc nvrtc_;
  lockstep::detail::cuda::EntryPoints<Driver>::Override drivers_;
  lockstep::detail::cuda::EntryPoints<Nvrtc>::Override nvrtcs_;
  lockstep::detail::cuda::EntryPoints<lockstep::detail::cuda::Cudnn>::Override no_cudnn_;
  lockstep::detail::cuda::EntryPoints<lockstep::detail::cuda::CublasLt>::Override no_cublaslt_;
};

}  // namespace testing

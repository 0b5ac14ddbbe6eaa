/// \file
/// Definitions of the emulated GPU, compiled once for all tests.
#include "support/host_gpu.hpp"

#include <regex>

#include "support/real_nvrtc.hpp"

namespace testing {

HostGpuMemory::HostGpuMemory() {
  base_ = static_cast<char*>(
      mmap(nullptr, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  free_[0] = capacity;
}

void* HostGpuMemory::allocate(std::size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096 + 4096;  // whole pages and a guard page
  if (bytes > free()) return nullptr;
  for (auto [at, size] : free_) {
    if (size < bytes) continue;
    free_.erase(at);
    if (size > bytes) free_[at + bytes] = size - bytes;
    used_[at] = bytes;
    return base_ + at;
  }
  return nullptr;
}

bool HostGpuMemory::release(void* p) {
  const auto i = used_.find(static_cast<std::size_t>(static_cast<char*>(p) - base_));
  if (i == used_.end()) return false;
  madvise(p, i->second, MADV_DONTNEED);
  free_[i->first] = i->second;
  used_.erase(i);
  return true;
}

std::size_t HostGpuMemory::free() const {
  std::size_t taken = 0;
  for (const auto& [at, size] : used_) taken += size;
  return limit - std::min(limit, taken);
}

HostGpuMemory::Open::Open(HostGpuMemory& memory) : memory_(memory) {
  memory_.protect(PROT_READ | PROT_WRITE);
}

HostGpuMemory::Open::~Open() { memory_.protect(PROT_NONE); }

void HostGpuMemory::protect(int access) {
  for (const auto& [at, size] : used_) mprotect(base_ + at, size - 4096, access);
}

HostGpu::HostGpu()
    : driver_(driver_table()), nvrtc_(nvrtc_table()), drivers_(driver_), nvrtcs_(nvrtc_) {
  instance = this;
}

HostGpu::~HostGpu() { instance = nullptr; }
void HostGpu::call(std::function<void()> run) { enqueue({std::move(run), nullptr, {}, {}, {}}); }

void HostGpu::enqueue(Call call) {
  auto shared = std::make_shared<Call>(std::move(call));
  if (capturing) {
    captured.push_back(shared);
    last_node = reinterpret_cast<CUgraphNode>(shared.get());
  } else {
    execute(*shared);
  }
}

void HostGpu::execute(Call& call) {
  const std::scoped_lock lock(instance->mutex_);
  const HostGpuMemory::Open open(instance->memory);
  execute_locked(call);
}

void HostGpu::execute_locked(Call& call) {
  if (instance->error_ != CUDA_SUCCESS) return;
  if (call.function == nullptr) return call.run();
  if (call.function->name == instance->faulty) {
    instance->error_ = CUDA_ERROR_ILLEGAL_ADDRESS;
    return;
  }
  std::vector<void*> pointers;
  for (auto& a : call.arguments) pointers.push_back(a.data());
  HostBlock::run_grid(*call.function, call.blocks, call.threads, pointers.data());
}

CUresult HostGpu::error() {
  const std::scoped_lock lock(instance->mutex_);
  return instance->error_;
}

void HostGpu::copy_arguments(Call& call, void** args) {
  call.arguments.clear();
  for (int i = 0; i < call.function->sizes[0]; ++i) {
    const char* const from = static_cast<const char*>(args[i]);
    call.arguments.emplace_back(from, from + call.function->sizes[1 + i]);
  }
}

HostGpu::Driver HostGpu::driver_table() {
  Driver d;
  d.cuInit = [](unsigned) { return CUDA_SUCCESS; };
  d.cuDriverGetVersion = [](int* v) { return *v = 13000, CUDA_SUCCESS; };
  d.cuGetErrorName = [](CUresult, const char** s) { return *s = "CUDA_ERROR", CUDA_SUCCESS; };
  d.cuGetErrorString = [](CUresult, const char** s) { return *s = "an error", CUDA_SUCCESS; };
  d.cuDeviceGetCount = [](int* n) { return *n = 1, CUDA_SUCCESS; };
  d.cuDeviceGet = [](CUdevice* g, int i) { return *g = i, CUDA_SUCCESS; };
  d.cuDeviceGetName = [](char* name, int n, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(n), "host");
    return CUDA_SUCCESS;
  };
  d.cuDeviceGetUuid = [](CUuuid* u, CUdevice) { return *u = {}, CUDA_SUCCESS; };
  d.cuDeviceTotalMem = [](std::size_t* n, CUdevice) {
    return *n = HostGpuMemory::capacity, CUDA_SUCCESS;
  };
  d.cuDeviceGetAttribute = [](int* v, CUdevice_attribute a, CUdevice) {
    *v = a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? 9
         : a == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0
                                                             : 4;
    return CUDA_SUCCESS;
  };
  d.cuDevicePrimaryCtxRetain = [](CUcontext* c, CUdevice) {
    return *c = reinterpret_cast<CUcontext>(8), CUDA_SUCCESS;
  };
  d.cuCtxPushCurrent = [](CUcontext) { return ++contexts, CUDA_SUCCESS; };
  d.cuCtxPopCurrent = [](CUcontext* c) {
    if (contexts-- == 0) return contexts = 0, CUDA_ERROR_INVALID_CONTEXT;
    return *c = reinterpret_cast<CUcontext>(8), CUDA_SUCCESS;
  };
  d.cuMemAlloc = [](CUdeviceptr* p, std::size_t n) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    const std::scoped_lock lock(instance->mutex_);
    void* const q = instance->memory.allocate(n);
    *p = reinterpret_cast<CUdeviceptr>(q);
    return q == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
  };
  d.cuMemFree = [](CUdeviceptr p) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    const std::scoped_lock lock(instance->mutex_);
    return instance->memory.release(reinterpret_cast<void*>(p)) ? CUDA_SUCCESS
                                                                : CUDA_ERROR_INVALID_VALUE;
  };
  d.cuMemGetInfo = [](std::size_t* f, std::size_t* a) {
    const std::scoped_lock lock(instance->mutex_);
    *f = instance->memory.free();
    *a = instance->memory.limit;
    return CUDA_SUCCESS;
  };
  d.cuMemHostAlloc = [](void** p, std::size_t n, unsigned) {
    return *p = std::malloc(n), CUDA_SUCCESS;
  };
  d.cuMemFreeHost = [](void* p) { return std::free(p), CUDA_SUCCESS; };
  d.cuMemcpyHtoDAsync = [](CUdeviceptr to, const void* from, std::size_t n, CUstream) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    enqueue({[=] {
               std::memcpy(reinterpret_cast<void*>(to), from, n);
               instance->copied_in += n;
             },
             nullptr,
             {},
             {},
             {}});
    return CUDA_SUCCESS;
  };
  d.cuMemcpyDtoHAsync = [](void* to, CUdeviceptr from, std::size_t n, CUstream) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    enqueue({[=] { std::memcpy(to, reinterpret_cast<void*>(from), n); }, nullptr, {}, {}, {}});
    return CUDA_SUCCESS;
  };
  d.cuMemcpyDtoDAsync = [](CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    enqueue({[=] { std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); },
             nullptr,
             {},
             {},
             {}});
    return CUDA_SUCCESS;
  };
  d.cuMemsetD8Async = [](CUdeviceptr p, unsigned char v, std::size_t n, CUstream) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    enqueue({[=] { std::memset(reinterpret_cast<void*>(p), v, n); }, nullptr, {}, {}, {}});
    return CUDA_SUCCESS;
  };
  d.cuStreamCreate = [](CUstream* s, unsigned) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    return *s = reinterpret_cast<CUstream>(16), CUDA_SUCCESS;
  };
  d.cuCtxGetStreamPriorityRange = [](int* least, int* greatest) {
    return *least = 0, *greatest = -5, CUDA_SUCCESS;
  };
  d.cuStreamCreateWithPriority = [](CUstream* s, unsigned flags, int) {
    return instance->driver_.cuStreamCreate(s, flags);
  };
  d.cuStreamDestroy = [](CUstream) { return CUDA_SUCCESS; };
  d.cuStreamSynchronize = [](CUstream) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    return capturing ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : error();
  };
  d.cuStreamQuery = [](CUstream) { return error(); };
  // Each call completes before it returns, so events need not wait.
  d.cuEventCreate = [](CUevent* e, unsigned) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    return *e = reinterpret_cast<CUevent>(24), CUDA_SUCCESS;
  };
  d.cuEventDestroy = [](CUevent) { return CUDA_SUCCESS; };
  d.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  d.cuEventRecordWithFlags = [](CUevent, CUstream, unsigned flags) {
    return (flags == CU_EVENT_RECORD_EXTERNAL) == capturing ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
  };
  d.cuEventSynchronize = [](CUevent) { return CUDA_SUCCESS; };
  d.cuStreamWaitEvent = [](CUstream, CUevent, unsigned) { return CUDA_SUCCESS; };
  d.cuStreamBeginCapture = [](CUstream, CUstreamCaptureMode) {
    capturing = true;
    captured.clear();
    return CUDA_SUCCESS;
  };
  d.cuStreamEndCapture = [](CUstream, CUgraph* g) {
    capturing = false;
    *g = reinterpret_cast<CUgraph>(new Graph(std::move(captured)));
    return CUDA_SUCCESS;
  };
  d.cuStreamGetCaptureInfo = [](CUstream, CUstreamCaptureStatus* s, cuuint64_t*, CUgraph*,
                                const CUgraphNode** nodes, const CUgraphEdgeData**,
                                std::size_t* n) {
    *s = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    *nodes = &last_node;
    *n = 1;
    return CUDA_SUCCESS;
  };
  d.cuEventElapsedTime = [](float* ms, CUevent, CUevent) {
    *ms = instance->times.empty() ? 1 : instance->times.front();
    if (!instance->times.empty()) instance->times.erase(instance->times.begin());
    return CUDA_SUCCESS;
  };
  d.cuGraphInstantiate = [](CUgraphExec* e, CUgraph g, unsigned long long) {
    *e = reinterpret_cast<CUgraphExec>(new Graph(*reinterpret_cast<Graph*>(g)));
    return CUDA_SUCCESS;
  };
  d.cuGraphDestroy = [](CUgraph g) { return delete reinterpret_cast<Graph*>(g), CUDA_SUCCESS; };
  d.cuGraphExecDestroy = [](CUgraphExec g) {
    return delete reinterpret_cast<Graph*>(g), CUDA_SUCCESS;
  };
  d.cuGraphLaunch = [](CUgraphExec g, CUstream) {
    if (error() != CUDA_SUCCESS) return error();
    const std::scoped_lock lock(instance->mutex_);
    const HostGpuMemory::Open open(instance->memory);  // once: it costs as much as a small kernel
    for (const auto& call : *reinterpret_cast<Graph*>(g)) execute_locked(*call);
    ++instance->graph_launches;
    return CUDA_SUCCESS;
  };
  d.cuGraphExecKernelNodeSetParams = [](CUgraphExec, CUgraphNode n,
                                        const CUDA_KERNEL_NODE_PARAMS* p) {
    copy_arguments(*reinterpret_cast<Call*>(n), p->kernelParams);
    return CUDA_SUCCESS;
  };
  d.cuModuleLoadData = [](CUmodule* m, const void* data) {
    return contexts == 0 ? CUDA_ERROR_INVALID_CONTEXT : load(m, data);
  };
  d.cuModuleUnload = [](CUmodule m) {
    dlclose(reinterpret_cast<Module*>(m)->library);
    delete reinterpret_cast<Module*>(m);
    return CUDA_SUCCESS;
  };
  d.cuModuleGetFunction = [](CUfunction* f, CUmodule m, const char* name) {
    auto& functions = reinterpret_cast<Module*>(m)->functions;
    const auto i = functions.find(name);
    if (i == functions.end()) return CUDA_ERROR_NOT_FOUND;
    *f = reinterpret_cast<CUfunction>(&i->second);
    return CUDA_SUCCESS;
  };
  d.cuFuncGetName = [](const char** name, CUfunction f) {
    return *name = reinterpret_cast<const HostFunction*>(f)->name, CUDA_SUCCESS;
  };
  d.cuLaunchKernel = [](CUfunction f, unsigned bx, unsigned by, unsigned bz, unsigned tx,
                        unsigned ty, unsigned tz, unsigned, CUstream, void** args, void**) {
    if (contexts == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (bx * by * bz == 0 || tx * ty * tz == 0 || tx * ty * tz > 1024)
      return CUDA_ERROR_INVALID_VALUE;
    if (error() != CUDA_SUCCESS) return error();
    Call call{{}, reinterpret_cast<const HostFunction*>(f), {bx, by, bz}, {tx, ty, tz}, {}};
    copy_arguments(call, args);
    {
      const std::scoped_lock lock(instance->mutex_);
      ++instance->launches;
    }
    enqueue(std::move(call));
    return CUDA_SUCCESS;
  };
  return d;
}

CUresult HostGpu::load(CUmodule* m, const void* data) {
  std::uint64_t size = 0;
  std::memcpy(&size, data, sizeof size);
  const char* const bytes = static_cast<const char*>(data) + sizeof size;
  char path[] = "/tmp/lockstep-host-gpu-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0 || write(file, bytes, size) != static_cast<ssize_t>(size))
    return CUDA_ERROR_INVALID_IMAGE;
  close(file);
  auto module = std::make_unique<Module>();
  module->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  if (module->library == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  const std::string names = bytes + size;
  std::istringstream list(names);
  bool synchronizes = false;
  list >> synchronizes;
  for (std::string name; list >> name;) {
    HostFunction f;
    const auto symbol = [&](const std::string& s) {
      return dlsym(module->library, (s + name).c_str());
    };
    f.call = reinterpret_cast<void (*)(void**)>(symbol("host_call_"));
    f.sizes = reinterpret_cast<const int* (*)()>(symbol("host_sizes_"))();
    f.thread = static_cast<HostThread**>(dlsym(module->library, "host_thread"));
    f.synchronizes = synchronizes;
    const auto place = module->functions.emplace(name, f).first;
    place->second.name = place->first.c_str();
  }
  *m = reinterpret_cast<CUmodule>(module.release());
  const std::scoped_lock lock(instance->mutex_);
  ++instance->modules;
  return CUDA_SUCCESS;
}

/// The cache file of a text in $LOCKSTEP_HOST_GPU_STORE: size of the log, log, code. The code is
/// empty if the text does not compile.
class HostGpu::Store {
 public:
  explicit Store(const Program& program) {
    const char* const folder = std::getenv("LOCKSTEP_HOST_GPU_STORE");
    if (folder == nullptr || *folder == 0) return;
    const std::string all = host_prologue + program.text + program.name + host_epilogue;
    path_ = std::string(folder) + "/" + lockstep::sha256_hex(std::as_bytes(std::span(all)));
  }
  bool read(Program& program) const {
    const std::string all = path_.empty() ? "" : HostGpu::read(path_);
    std::uint64_t size = 0;
    if (all.size() < sizeof size) return false;
    std::memcpy(&size, all.data(), sizeof size);
    program.log = all.substr(sizeof size, size);
    program.code = all.substr(sizeof size + size);
    return true;
  }
  void write(const Program& program) const {
    const bool is_refused = program.code.empty();
    // Without an error message the compiler is missing or was killed; that is not a verdict.
    if (path_.empty() || (is_refused && program.log.find("error") == std::string::npos)) return;
    const std::string part = path_ + "." + std::to_string(getpid());
    const std::uint64_t size = program.log.size();
    std::ofstream file(part, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&size), sizeof size) << program.log << program.code;
    file.close();
    if (!file || std::rename(part.c_str(), path_.c_str()) != 0) unlink(part.c_str());
  }

 private:
  std::string path_;
};

HostGpu::Nvrtc HostGpu::nvrtc_table() {
  Nvrtc n;
  n.nvrtcVersion = [](int* major, int* minor) {
    // The version identifies the prologue and epilogue, with which cached kernels were compiled.
    const std::string all = std::string(host_prologue) + host_epilogue;
    *major = 0;
    *minor = static_cast<int>(std::hash<std::string>{}(all) % 1000000);
    return NVRTC_SUCCESS;
  };
  n.nvrtcGetErrorString = [](nvrtcResult) { return "the host's compiler refused"; };
  n.nvrtcCreateProgram = [](nvrtcProgram* p, const char* text, const char* name, int,
                            const char* const*, const char* const*) {
    *p = reinterpret_cast<nvrtcProgram>(new Program{text, name, {}, {}});
    return NVRTC_SUCCESS;
  };
  n.nvrtcDestroyProgram = [](nvrtcProgram* p) {
    delete reinterpret_cast<Program*>(*p);
    return NVRTC_SUCCESS;
  };
  n.nvrtcCompileProgram = [](nvrtcProgram p, int, const char* const*) {
    const std::scoped_lock lock(instance->mutex_);
    ++instance->compiled;
    Program& program = *reinterpret_cast<Program*>(p);
    const Store store(program);
    if (!store.read(program)) {
      if (!compile_for_host(program) || !compile_for_gpus(program)) program.code.clear();
      store.write(program);
    }
    return program.code.empty() ? NVRTC_ERROR_COMPILATION : NVRTC_SUCCESS;
  };
  n.nvrtcGetProgramLogSize = [](nvrtcProgram p, std::size_t* size) {
    *size = reinterpret_cast<Program*>(p)->log.size() + 1;
    return NVRTC_SUCCESS;
  };
  n.nvrtcGetProgramLog = [](nvrtcProgram p, char* to) {
    std::strcpy(to, reinterpret_cast<Program*>(p)->log.c_str());
    return NVRTC_SUCCESS;
  };
  n.nvrtcGetCUBINSize = [](nvrtcProgram p, std::size_t* size) {
    *size = reinterpret_cast<Program*>(p)->code.size();
    return NVRTC_SUCCESS;
  };
  n.nvrtcGetCUBIN = [](nvrtcProgram p, char* to) {
    const std::string& code = reinterpret_cast<Program*>(p)->code;
    std::memcpy(to, code.data(), code.size());
    return NVRTC_SUCCESS;
  };
  return n;
}

std::string HostGpu::read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool HostGpu::compile_for_host(Program& program) {
  char folder[] = "/tmp/lockstep-host-gpu-XXXXXX";
  if (mkdtemp(folder) == nullptr) return program.log = "no folder", false;
  const std::string base = std::string(folder) + "/kernel";
  std::string names;
  {
    std::ofstream file(base + ".cpp");
    file << host_prologue << "#line 1 \"" << program.name << "\"\n"
         << program.text << host_epilogue;
    static const std::regex entry(R"(KERNEL\((\w+)\))");
    for (std::sregex_iterator i(program.text.begin(), program.text.end(), entry), end; i != end;
         ++i) {
      const std::string name = (*i)[1];
      if (name == "name") continue;  // the macro's own definition
      names += " " + name;
      file << "extern \"C\" void host_call_" << name << "(void** a) { host_call(" << name
           << ", a); }\nextern \"C\" const int* host_sizes_" << name << "() { return host_sizes("
           << name << "); }\n";
    }
  }
  // The program that loads the code has the C library; searching it again is a seventh of the time.
  const std::string command =
      "g++ -x c++ -std=c++17 -O1 -w -shared -fPIC -ffp-contract=off -nostdlib -o " + base + ".so " +
      base + ".cpp -lgcc 2> " + base + ".log";
  const bool done = std::system(command.c_str()) == 0;
  program.log = read(base + ".log");
  if (done) {
    const std::string library = read(base + ".so");
    const std::uint64_t size = library.size();
    program.code.assign(reinterpret_cast<const char*>(&size), sizeof size);
    program.code += library;
    // Functions of the prelude synchronize even if unused, so only the text after it is searched.
    const std::size_t text = program.text.rfind("return z ^ (z >> 31);");
    const std::string own = program.text.substr(text == std::string::npos ? 0 : text);
    static const std::regex waits("__sync|__shfl|_sum\\(|_(arg)?max\\(");
    program.code += std::regex_search(own, waits) ? "1" : "0";
    program.code += names;
    program.code += '\0';
  }
  for (const char* const end : {".cpp", ".so", ".log"}) unlink((base + end).c_str());
  rmdir(folder);
  return done;
}

std::string HostGpu::text_marker(const std::string& text) {
  std::string kind;
  for (const char* const architecture : gpu_architectures) kind += architecture;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#define ")) kind += line + "\n";
  const char* const folder = std::getenv("LOCKSTEP_KERNEL_CACHE");
  return std::string(folder == nullptr ? "" : folder) + "/" +
         std::to_string(std::hash<std::string>{}(kind)) + ".text";
}

bool HostGpu::is_first_of_its_text(const std::string& text) {
  const std::string marker = text_marker(text);
  if (marker.starts_with('/') && marker.rfind('/') == 0) return seen_texts.insert(marker).second;
  const int file = ::open(marker.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (file >= 0) close(file);
  return file >= 0 || errno != EEXIST;
}

void HostGpu::forget_text(const std::string& text) {
  seen_texts.erase(text_marker(text));
  unlink(text_marker(text).c_str());
}

bool HostGpu::compile_for_gpus(Program& program) {
  if (real_nvrtc() == nullptr) return true;
  // The first specialization of a text is compiled for all architectures; of the others, a sample
  // for one of them.
  constexpr auto& all = gpu_architectures;
  const bool is_new = is_first_of_its_text(program.text);
  const std::size_t one = std::hash<std::string>{}(program.text) % (8 * std::size(all));
  for (std::size_t i = 0; i < std::size(all); ++i) {
    if (!is_new && i != one) continue;
    const GpuCode code = compile_for_gpu(program.text, program.name, all[i]);
    if (code.done && !code.spills()) continue;
    program.log = std::string("for ") + all[i] + ": " + code.log;
    if (is_new) forget_text(program.text);  // the next run checks all architectures again
    return false;
  }
  return true;
}

}  // namespace testing

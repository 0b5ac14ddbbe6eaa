/// \file
/// CUDA C++ built-ins for the host compiler, prepended to a kernel's text when a test compiles it
/// as C++. The threads of a block run in turn; see host_gpu.hpp.
#pragma once

namespace testing {

inline constexpr char host_prologue[] = R"host(
// Declared here, since <math.h> takes a sixth of the time of a compilation. The compiler knows what
// these functions do, so its code is the same.
typedef __SIZE_TYPE__ size_t;
#define HOST_UNARY(name) \
  extern "C" float name##f(float); \
  extern "C" double name(double);
#define HOST_BINARY(name) \
  extern "C" float name##f(float, float); \
  extern "C" double name(double, double);
HOST_UNARY(ceil) HOST_UNARY(cos) HOST_UNARY(cosh) HOST_UNARY(erf) HOST_UNARY(erfc) HOST_UNARY(exp)
HOST_UNARY(expm1) HOST_UNARY(fabs) HOST_UNARY(floor) HOST_UNARY(log) HOST_UNARY(log1p)
HOST_UNARY(rint) HOST_UNARY(round) HOST_UNARY(sin) HOST_UNARY(sinh) HOST_UNARY(sqrt)
HOST_UNARY(tan) HOST_UNARY(tanh) HOST_UNARY(trunc) HOST_BINARY(atan2) HOST_BINARY(copysign)
HOST_BINARY(fmax) HOST_BINARY(fmin) HOST_BINARY(fmod) HOST_BINARY(pow)
extern "C" float fmaf(float, float, float);
extern "C" double fma(double, double, double);
extern "C" float ldexpf(float, int);
extern "C" double ldexp(double, int);

struct HostIndex { unsigned x, y, z; };
// Laid out as testing::HostThread.
struct HostThread {
  HostIndex thread, block, block_size, grid_size;
  void (*block_barrier)();
  void (*warp_barrier)();
  unsigned char* slots;  // 8 bytes for each thread of the block
};
extern "C" { HostThread* host_thread; }
#define threadIdx (host_thread->thread)
#define blockIdx (host_thread->block)
#define blockDim (host_thread->block_size)
#define gridDim (host_thread->grid_size)
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __shared__ static
#define KERNEL(name) extern "C" void name

static inline void __syncthreads() { host_thread->block_barrier(); }
static inline void __syncwarp(unsigned = 0) { host_thread->warp_barrier(); }
static inline unsigned host_rank() {
  return (host_thread->thread.z * host_thread->block_size.y + host_thread->thread.y) *
             host_thread->block_size.x + host_thread->thread.x;
}
template <class T>
static inline T host_shuffle(T x, unsigned from) {
  __builtin_memcpy(host_thread->slots + 8 * host_rank(), &x, sizeof x);
  host_thread->warp_barrier();
  T y;
  __builtin_memcpy(&y, host_thread->slots + 8 * from, sizeof y);
  host_thread->warp_barrier();
  return y;
}
template <class T>
static inline T __shfl_xor_sync(unsigned, T x, int d) { return host_shuffle(x, host_rank() ^ d); }
template <class T>
static inline T __shfl_sync(unsigned, T x, int lane) {
  return host_shuffle(x, host_rank() / 32 * 32 + lane % 32);
}
template <class T>
static inline T __shfl_down_sync(unsigned, T x, int d) {
  const unsigned r = host_rank();
  return host_shuffle(x, r % 32 + d < 32 ? r + d : r);
}
template <class T>
static inline T atomicAdd(T* p, T x) { const T before = *p; *p += x; return before; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline void sincospif(float x, float* s, float* c) {
  const double angle = 3.14159265358979323846 * x;
  *s = (float)sin(angle);
  *c = (float)cos(angle);
}
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }
)host";

/// Appended to the text: templates that call an entry point with an array of argument pointers, and
/// report the sizes of its arguments.
inline constexpr char host_epilogue[] = R"host(
template <class... P> struct HostCall;
template <int... I> struct HostIndices {};
template <int N, int... I> struct HostMake : HostMake<N - 1, N - 1, I...> {};
template <int... I> struct HostMake<0, I...> { typedef HostIndices<I...> type; };
template <class... P, int... I>
static void host_apply(void (*f)(P...), void** a, HostIndices<I...>) {
  f(*static_cast<P*>(a[I])...);
}
template <class... P>
static void host_call(void (*f)(P...), void** a) {
  host_apply(f, a, typename HostMake<sizeof...(P)>::type());
}
template <class... P>
static const int* host_sizes(void (*)(P...)) {
  static const int sizes[] = {static_cast<int>(sizeof...(P)), static_cast<int>(sizeof(P))...};
  return sizes;
}
)host";

}  // namespace testing

/// \file
/// Training gives the same results, or throws one clear error, for any OpenMP settings, calling
/// thread and process.
#include "lockstep/devices/cpu/team.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/cpu.hpp"
#include "lockstep/layers/layers.hpp"
#include "lockstep/losses/losses.hpp"
#include "lockstep/model/residual.hpp"
#include "lockstep/optimizers/optimizers.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/strategies/one_device.hpp"
#include "lockstep/training/model.hpp"
#include "support/child.hpp"
#include "support/log_lines.hpp"

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using testing::Environment;
using testing::in_child;
using testing::in_process;

namespace {

/// Digits is the tutorials' CNN. Kernels has the other multi-threaded kernels: oneDNN's, Winograd's
/// and hand-written ones, fused or not.
struct Digits
    : ls::Sequential<ls::Input<14, 14, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                     ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<5>> {};
struct Block
    : ls::Sequential<
          ls::Residual<ls::Sequential<ls::Conv2D<16, 3, ls::same>, ls::BatchNormalization<>>>,
          ls::ReLU> {};
struct Kernels
    : ls::Sequential<
          ls::Input<12, 12, 3>, ls::Conv2D<16, 3, ls::same>, ls::BatchNormalization<>, ls::ReLU,
          Block, ls::MaxPooling2D<3, ls::same, ls::strides(2)>, ls::DepthwiseConv2D<3, ls::same>,
          ls::LayerNormalization<>, ls::Conv2DTranspose<16, 3, ls::same, ls::strides(2)>,
          ls::AveragePooling2D<>, ls::UpSampling2D<>, ls::Conv2D<8, 5, ls::strides(1), ls::relu>,
          ls::Dropout<ls::rate(0.25f)>, ls::Flatten, ls::Dense<24>, ls::Tanh, ls::Dense<5>> {};

constexpr std::size_t batch = 16, steps = 3;

struct Result {
  double loss = 0;                // loss of the last step
  std::vector<double> predicted;  // predictions of the batch
  friend bool operator==(const Result&, const Result&) = default;
};

/// A model and its training run. `between` is called before each step.
template <class Net, class D>
class Trainee {
 public:
  using T = typename D::real;
  explicit Trainee(D device = {})
      : model_(Net{}, ls::OneDevice<D>{.on = device},
               ls::SparseCategoricalCrossentropy{.from_logits = true},
               ls::SGD{.learning_rate = 0.05f, .momentum = 0.9f}) {
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] = static_cast<T>(static_cast<double>(i * 7919 % 101) / 50 - 1);
    for (std::size_t i = 0; i < batch; ++i) y_[i] = static_cast<std::int32_t>(i * i % 5);
  }
  template <class Between>
  Result run(const Between& between) {
    Result result;
    for (std::size_t i = 0; i < steps; ++i) {
      between();
      result.loss = model_.train_on_batch(x_, y_)["loss"];
    }
    between();
    const ls::Predictions<T> predictions = model_.predict(x_, batch);
    for (const T v : predictions.elements()) result.predicted.push_back(v);
    return result;
  }
  Result run() {
    return run([] {});
  }
  int threads() const { return model_.threads(); }

 private:
  ls::Model<Net, ls::OneDevice<D>, ls::SparseCategoricalCrossentropy, ls::SGD> model_;
  std::vector<T> x_ = std::vector<T>(batch * Net::input_shape.size());
  std::vector<std::int32_t> y_ = std::vector<std::int32_t>(batch);
};

template <class Net>
Result reference() {
  static const Result result = Trainee<Net, ls::Reference<double>>().run();
  return result;
}

/// Whether float arithmetic explains the difference.
bool are_close(const Result& a, const Result& b) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < b.predicted.size(); ++i) {
    error += std::pow(a.predicted.at(i) - b.predicted[i], 2);
    size += std::pow(b.predicted[i], 2);
  }
  return std::abs(a.loss - b.loss) < 1e-4 * std::abs(b.loss) && error < 1e-8 * size;
}

template <class Net>
bool trains(int threads) {
  return are_close(Trainee<Net, ls::Cpu>({.threads = threads}).run(), reference<Net>());
}

/// Calls body() in each thread of a parallel region.
template <class Body>
void in_region(const Body& body, unsigned threads = 2) {
  GOMP_parallel([](void* b) { (*static_cast<const Body*>(b))(); }, const_cast<Body*>(&body),
                threads, 0);
}

template <class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const ls::Error& e) {
    return e.what();
  }
  return "";
}

std::string text_of(const Environment& environment) {
  std::string text;
  for (const auto& [key, value] : environment) text += std::string(key) + "=" + value + " ";
  return text;
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Whether this process comes to have `count` threads; false after a minute.
bool has_threads(std::size_t count) {
  for (int i = 0; i < 60'000; ++i) {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    if (static_cast<std::size_t>(std::distance(begin(tasks), end(tasks))) == count) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

constexpr const char* training = "training has the reference's numbers on one thread and on two";

/// Runs `body` on a thread with `size` bytes of stack; returns the bytes that it used.
template <class Body>
std::size_t on_stack_of(std::size_t size, const Body& body) {
  auto* const memory = static_cast<unsigned char*>(
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(memory, 0x5a, size);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, memory, size);
  pthread_t thread;
  const int error = pthread_create(
      &thread, &attributes,
      [](void* b) -> void* {
        (*static_cast<const Body*>(b))();
        return nullptr;
      },
      const_cast<Body*>(&body));
  pthread_attr_destroy(&attributes);
  REQUIRE(error == 0);
  pthread_join(thread, nullptr);
  const std::size_t untouched = static_cast<std::size_t>(
      std::find_if(memory, memory + size, [](auto b) { return b != 0x5a; }) - memory);
  ::munmap(memory, size);
  return size - untouched;
}

}  // namespace

// The cases below run this one in processes with other settings.
TEST_CASE("training has the reference's numbers on one thread and on two") {
  for (const int threads : {1, 2}) {
    INFO("threads " << threads);
    CHECK(trains<Digits>(threads));
    CHECK(trains<Kernels>(threads));
  }
  CHECK(are_close(Trainee<Digits, ls::Cpu>().run(), reference<Digits>()));
}

TEST_CASE("no variable of OpenMP changes what training computes") {
  for (const Environment& environment : {Environment{{"OMP_DYNAMIC", "true"}},
                                         {{"OMP_THREAD_LIMIT", "1"}},
                                         {{"OMP_MAX_ACTIVE_LEVELS", "0"}},
                                         {{"OMP_PROC_BIND", "true"}}}) {
    INFO(text_of(environment));
    CHECK(in_process(training, environment) == 0);
  }
}

TEST_CASE("no combination of OpenMP's variables changes what training computes", "[.slow]") {
  const Environment one = {{"OMP_NUM_THREADS", "1"},
                           {"OMP_NUM_THREADS", "4,2"},
                           {"OMP_NESTED", "true"},
                           {"OMP_PROC_BIND", "false"},
                           {"OMP_PROC_BIND", "master"},
                           {"OMP_PROC_BIND", "close"},
                           {"OMP_PROC_BIND", "spread"},
                           {"OMP_PLACES", "cores"},
                           {"OMP_PLACES", "threads"},
                           {"OMP_PLACES", "{0}"},
                           {"GOMP_CPU_AFFINITY", "0"},
                           {"GOMP_CPU_AFFINITY", "0-1"},
                           {"OMP_WAIT_POLICY", "active"},
                           {"OMP_WAIT_POLICY", "passive"},
                           {"GOMP_SPINCOUNT", "0"},
                           {"OMP_SCHEDULE", "dynamic,1"},
                           {"OMP_STACKSIZE", "64k"},
                           {"OMP_STACKSIZE", "1g"},
                           {"OMP_CANCELLATION", "true"},
                           {"OMP_THREAD_LIMIT", "2"},
                           {"OMP_MAX_ACTIVE_LEVELS", "3"},
                           {"OMP_DISPLAY_ENV", "false"},
                           {"DNNL_MAX_CPU_ISA", "SSE41"},
                           {"DNNL_MAX_CPU_ISA", "AVX2"},
                           {"DNNL_PRIMITIVE_CACHE_CAPACITY", "0"}};
  const std::vector<Environment> with = {{},
                                         {{"OMP_DYNAMIC", "true"}},
                                         {{"OMP_THREAD_LIMIT", "1"}},
                                         {{"OMP_MAX_ACTIVE_LEVELS", "0"}},
                                         {{"OMP_PROC_BIND", "true"}, {"OMP_DYNAMIC", "true"}}};
  for (const auto& variable : one)
    for (Environment environment : with)
      for (const int cores : {0, 1}) {
        environment.insert(environment.begin(), variable);
        INFO(text_of(environment) << "cores " << cores);
        CHECK(in_process(training, environment, cores) == 0);
      }
}

TEST_CASE("OpenMP's settings may change between steps") {
  Trainee<Kernels, ls::Cpu> plain({.threads = 2}), disturbed({.threads = 2});
  const Result expected = plain.run();
  int i = 0;
  const int threads = omp_get_max_threads(), levels = omp_get_max_active_levels();
  const Result found = disturbed.run([&] {
    omp_set_dynamic(i % 2);
    omp_set_max_active_levels(i % 3);
    omp_set_num_threads(1 + i % 4);
    ++i;
  });
  CHECK(omp_get_max_threads() == 1 + (i - 1) % 4);  // restored after each call
  CHECK(omp_get_dynamic() == (i - 1) % 2);
  omp_set_dynamic(0);
  omp_set_max_active_levels(levels);
  omp_set_num_threads(threads);
  CHECK(found == expected);
}

TEST_CASE("a primitive planned for one team size does not run with another") {
  auto context = ls::Cpu{.threads = 2}.open(1, 0);
  const ls::detail::onednn::Site site{"conv2d", ls::shape(4, 4, 8)};
  const auto scope = context.scope();
  CHECK(message_of([&] { site.check_team(2); }).empty());
  CHECK_THAT(message_of([&] { site.check_team(3); }),
             StartsWith("cpu: conv2d with result (4, 4, 8) is planned for 3 threads"));
  omp_set_dynamic(1);
  CHECK_THAT(message_of([&] { site.check_team(2); }), ContainsSubstring("omp_set_dynamic"));
  omp_set_dynamic(0);
}

TEST_CASE("a model used inside a parallel region throws, and goes on outside of it") {
  Trainee<Kernels, ls::Cpu> model({.threads = 2}), same({.threads = 2});
  std::string message;
  in_region([&] {
    if (omp_get_thread_num() == 1) message = message_of([&] { model.run(); });
  });
  CHECK_THAT(message,
             StartsWith("cpu: the model computes with 2 threads, but OpenMP grants 1 here: "
                        "inside an OpenMP parallel region"));
  CHECK(model.run() == same.run());
}

TEST_CASE("a model runs in a region of one thread, but not in one of several with nesting") {
  Trainee<Digits, ls::Cpu> model({.threads = 2}), same({.threads = 2});
  Result found;
  in_region([&] { found = model.run(); }, 1);
  CHECK(found == same.run());
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(3);
  std::string message;
  in_region([&] {
    if (omp_get_thread_num() == 0) message = message_of([&] { model.run(); });
  });
  omp_set_max_active_levels(levels);
  CHECK_THAT(message, ContainsSubstring("inside an OpenMP parallel region"));
}

TEST_CASE("models created inside a parallel region compute on one thread each") {
  const testing::LogLines log;
  const Result expected = reference<Kernels>();
  int good[2] = {}, threads[2] = {};
  in_region([&] {
    Trainee<Kernels, ls::Cpu> model;
    const int i = omp_get_thread_num();
    threads[i] = model.threads();
    good[i] = are_close(model.run(), expected);
  });
  CHECK((good[0] && good[1]));
  CHECK((threads[0] == 1 && threads[1] == 1));
  CHECK(log.lines.empty());
  in_region([&] {
    if (omp_get_thread_num() == 1) threads[0] = Trainee<Digits, ls::Cpu>({.threads = 2}).threads();
  });
  CHECK(threads[0] == 1);
  for (const std::string& line : log.lines)  // logged by the process' first such model only
    CHECK_THAT(line, StartsWith("cpu: OpenMP grants 1 thread instead of 2"));
}

TEST_CASE("a model created in one thread can be used in others") {
  const Result expected = Trainee<Kernels, ls::Cpu>({.threads = 2}).run();
  Trainee<Kernels, ls::Cpu> model({.threads = 2});
  CHECK(std::async(std::launch::async, [&] { return model.run(); }).get() == expected);
  auto made = std::async(std::launch::async, [] {
    return std::make_unique<Trainee<Kernels, ls::Cpu>>(ls::Cpu{.threads = 2});
  });
  CHECK(made.get()->run() == expected);
  Result one, two;  // computed concurrently
  std::thread other([&] { one = Trainee<Kernels, ls::Cpu>({.threads = 2}).run(); });
  two = Trainee<Kernels, ls::Cpu>({.threads = 2}).run();
  other.join();
  CHECK(one == expected);
  CHECK(two == expected);
}

TEST_CASE("training needs little stack, and a smaller one is an error") {
  bool good = false;
  const Result digits = reference<Digits>(), kernels = reference<Kernels>();
  const auto train = [&] {
    good = are_close(Trainee<Digits, ls::Cpu>({.threads = 2}).run(), digits) &&
           are_close(Trainee<Kernels, ls::Cpu>({.threads = 2}).run(), kernels);
  };
  const std::size_t empty = on_stack_of(1 << 20, [] {}), used = on_stack_of(1 << 20, train);
  CHECK(good);
  CAPTURE(used, empty);
  CHECK(used - empty <= ls::detail::min_stack_bytes);
  good = false;
  on_stack_of(empty + ls::detail::min_stack_bytes + 8192, train);  // with what calls open
  CHECK(good);
  std::string message;
  on_stack_of(32 * 1024, [&] { message = message_of([] { ls::Cpu{}.open(1, 0); }); });
  CHECK_THAT(message, StartsWith("cpu: the calling thread has ") &&
                          ContainsSubstring("pthread_attr_setstacksize"));
}

TEST_CASE("after a fork the parent goes on, and the child trains or throws") {
  const Result expected = Trainee<Digits, ls::Cpu>({.threads = 2}).run();
  Trainee<Digits, ls::Cpu> model({.threads = 2});
  in_region([] {});
  CHECK(in_child([&] {  // the parent's model in the thread that forked
          const std::string message = message_of([&] { model.run(); });
          return message.find("forked") == std::string::npos ? 1 : 0;
        }) == 0);
  CHECK(in_child([&] {  // a new model in that thread
          const testing::LogLines log;
          Trainee<Digits, ls::Cpu> own({.threads = 2});
          return own.threads() == 1 && are_close(own.run(), expected) ? 0 : 1;
        }) == 0);
  CHECK(in_child([&] {  // the parent's model in a new thread
          bool equal = false;
          std::thread([&] { equal = model.run() == expected; }).join();
          return equal ? 0 : 1;
        }) == 0);
  CHECK(model.run() == expected);
}

TEST_CASE("a forked child does not wait for a team that the parent's program formed") {
  // In a child process, so that only the program has run a parallel region before the second fork.
  CHECK(in_child([] {
          int good = 1;
          std::thread([&] {
            in_region([] {});
            good = in_child([] {
              ls::set_log({});
              return trains<Digits>(2) ? 0 : 1;
            });
          }).join();
          return good;
        }) == 0);
}

TEST_CASE("a failure to create threads is an error, not the end of the process") {
  CHECK(in_child([] {
          const bool is_root = ::getuid() == 0;
          if (is_root && ::setuid(65534) != 0) return 0;
          const rlimit none{1, 1};
          ::setrlimit(RLIMIT_NPROC, &none);
          const std::string message = message_of([] { ls::detail::check_thread_creation(3); });
          return message.starts_with("cpu: cannot create thread ") &&
                         message.find("ulimit -u") != std::string::npos
                     ? 0
                     : 1;
        }) == 0);
}

// Run by the case below in processes with the variables that it names.
TEST_CASE("a team is parked where the policy is passive and OpenMP has none") {
  const bool is_passive = variable("LOCKSTEP_WAIT_POLICY") == "passive";
  const ls::detail::Cores all;
  const auto cores = static_cast<std::size_t>(all.count());
  const bool parks = is_passive && variable("OMP_WAIT_POLICY").empty() &&
                     cores <= ls::detail::TeamWaits::max_parked;
  {
    auto context = ls::Cpu{.threads = 2}.open(1, 0);
    const auto waits = ls::detail::TeamWaits::of_process();
    const auto scope = context.scope();
    if (!variable("LOCKSTEP_WAIT_POLICY").empty()) CHECK(waits->are_short() == parks);
    // This thread and its team of two, the parked thread and its team.
    if (parks) CHECK(has_threads(3 + std::max<std::size_t>(cores - 1, 1)));
  }
  if (parks) CHECK(has_threads(2));  // the parked ones end with the last context
  auto bound = ls::Cpu{.index = 0, .threads = 1}.open(2, 0);
  const auto count = [&] {
    const auto scope = bound.scope();
    return ls::detail::Cores().count();
  };
  CHECK(count() == all.share(2, 0).count());
  bound.leave_cores_when_contended();
  if (is_passive) CHECK(count() == all.count());
}

TEST_CASE("teams park under a passive policy only") {
  constexpr const char* parked = "a team is parked where the policy is passive and OpenMP has none";
  for (const char* policy : {"active", "passive"})
    for (const char* openmp : {"", "passive"}) {
      INFO(policy << " " << openmp);
      CHECK(in_process(parked, {{"LOCKSTEP_WAIT_POLICY", policy}, {"OMP_WAIT_POLICY", openmp}}) ==
            0);
    }
  CHECK(in_process(parked, {{"LOCKSTEP_WAIT_POLICY", "never"}}) != 0);
}

// Likewise.
TEST_CASE("a trained model is written where RESULT_FILE is set") {
  const Result result = Trainee<Kernels, ls::Cpu>({.threads = 2}).run();
  CHECK(are_close(result, reference<Kernels>()));
  std::ofstream file(variable("RESULT_FILE"));
  file << std::hexfloat << result.loss;
  for (const double v : result.predicted) file << ' ' << v;
}

TEST_CASE("results do not depend on how OpenMP's threads wait") {
  char name[] = "/tmp/lockstep_waits_XXXXXX";
  const std::filesystem::path folder = ::mkdtemp(name);
  const auto result_with = [&](const char* policy) {
    const std::string path = folder / policy;
    CHECK(in_process("a trained model is written where RESULT_FILE is set",
                     {{"RESULT_FILE", path.c_str()},
                      {"LOCKSTEP_WAIT_POLICY", policy},
                      {"OMP_WAIT_POLICY", ""}}) == 0);
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string active = result_with("active");
  CHECK(active.size() > 1000);
  CHECK(result_with("passive") == active);
  std::filesystem::remove_all(folder);
}

/// \file
/// Machine code of lockstep's kernels for Hopper, compiled by NVRTC: the instructions that a thread
/// executes per element, and how reductions end. Bounds are some percent above NVRTC 13.0's counts.
/// `-s` prints each count.
#include "support/sass.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/cuda.hpp"
#include "lockstep/lockstep.hpp"
#include "support/pooled_convolutions.hpp"
#include "support/real_nvrtc.hpp"

using namespace lockstep;
using namespace lockstep::detail::cuda;
using testing::SassKernel;

namespace {

void need_tools() {
  if (testing::real_nvrtc() == nullptr) SKIP("there is no NVRTC");
  if (testing::nvdisasm().empty())
    SKIP("there is no nvdisasm: install the CUDA toolkit, or name it in LOCKSTEP_NVDISASM");
}

/// The entry points of a text, none of which spills registers.
std::map<std::string, SassKernel> compiled(const Source& source, std::span<const Define> defines) {
  const auto code = testing::compile_for_gpu(whole_text(source, defines), source.name, "sm_90a");
  INFO(source.name << ": " << code.log);
  REQUIRE(code.done);
  CHECK_FALSE(code.spills());
  return testing::disassemble(code.code);
}

constexpr std::array precisions{"float32", "bfloat16", "float16"};
constexpr std::array bytes{4, 2, 2};

/// Bounds for the main loop of an entry point.
struct Bound {
  const char* entry;
  std::size_t reads;              // per element
  std::array<double, 3> at_most;  // instructions per element, by precision
  std::size_t ahead = 8;          // loads before the first store: they are in flight together
};

void check_loops(const Source& source, const char* what, const std::vector<Define>& defines,
                 const std::vector<Bound>& bounds) {
  for (std::size_t p = 0; p < precisions.size(); ++p) {
    auto all = defines;
    all.emplace_back("ACTIVATION", static_cast<int>(p));
    const auto kernels = compiled(source, all);
    for (const Bound& b : bounds) {
      const auto loop = kernels.at(b.entry).main_loop(bytes[p]);
      INFO(b.entry << what << ", " << precisions[p] << ": " << loop.instructions
                   << " instructions for " << loop.reads / b.reads);
      REQUIRE(loop.reads > 0);
      CHECK(loop.per_element(b.reads) <= b.at_most[p]);
      CHECK(loop.ahead >= b.ahead);
    }
  }
}

std::vector<Define> normalization(int tail) {
  return {{"LANES", 16}, {"CHANNELS", 16},  {"SCALE", 1},
          {"CENTER", 1}, {"EPSILON", 1e-3}, {"TAIL", tail}};
}
constexpr Source layer_source{"block_normalization_sums", block_normalization_sums_text,
                              columns_functions};
constexpr Source batch_source{"batch_normalization", batch_normalization_text, columns_functions};

}  // namespace

TEST_CASE("a normalization's loops take few instructions per element in each type") {
  need_tools();
  check_loops(batch_source, "", normalization(0),
              {{"moments", 1, {8, 9, 9}},
               {"normalize", 1, {10, 12, 12}},
               {"sums", 2, {13, 15, 15}},
               {"gradient", 2, {13, 17, 17}}});
  check_loops(
      batch_source, " and ReLU", normalization(1),
      {{"normalize", 1, {11, 14, 14}}, {"sums", 2, {15, 18, 18}}, {"gradient", 2, {16, 20, 20}}});
  check_loops(
      batch_source, ", sum and ReLU", normalization(2),
      {{"normalize", 2, {14, 18, 18}}, {"sums", 3, {17, 22, 22}}, {"gradient", 3, {17, 22, 22}}});
}

TEST_CASE("column sums take few instructions per element in each type") {
  need_tools();
  check_loops(column_sums_source, "", {{"COLUMNS", 64}, {"WIDTH", 32}, {"MASKED", 0}},
              {{"column_sums", 1, {7.5, 8.5, 8.5}}});
  check_loops(column_sums_source, ", masked", {{"COLUMNS", 64}, {"WIDTH", 32}, {"MASKED", 1}},
              {{"column_sums", 2, {18, 21, 21}, 2}});
}

// Grid::over gives a thread one element of most tensors.
TEST_CASE("element-wise kernels take few instructions in a thread with one element") {
  need_tools();
  struct Entry {
    const char* name;
    std::size_t reads;
    std::array<std::size_t, 3> at_most;
  };
  for (std::size_t p = 0; p < precisions.size(); ++p) {
    const std::array defines{Define("ACTIVATION", static_cast<int>(p))};
    const auto kernels = compiled(elements_source, defines);
    for (const Entry& e :
         {Entry{"add_elements", 2, {45, 40, 50}}, Entry{"mask_elements", 2, {49, 42, 52}},
          Entry{"to_floats", 1, {45, 44, 44}}}) {
      const auto least = kernels.at(e.name).shortest(bytes[p], e.reads);
      REQUIRE(least);
      INFO(e.name << ", " << precisions[p] << ": " << *least << " instructions for one");
      CHECK(*least <= e.at_most[p]);
    }
  }
}

namespace {

template <std::size_t N>
std::vector<Define> list(const std::array<Define, N>& defines) {
  return {defines.begin(), defines.end()};
}

/// A grid-wide reduction ends with one atomic and one fence, executed by one thread, between two
/// barriers. `part_bytes`: size of the partial sum that a block leaves for the last one.
void check_end(const Source& source, const std::vector<Define>& defines,
               const std::vector<const char*>& entries, int part_bytes = 8) {
  const auto kernels = compiled(source, defines);
  for (const char* const entry : entries) {
    INFO(source.name << ", " << entry);
    const SassKernel& kernel = kernels.at(entry);
    CHECK(kernel.count("ATOMG") + kernel.count("ATOM") == 1);
    CHECK(kernel.count("MEMBAR") == 1);
    const auto fence = kernel.find("MEMBAR");
    const auto before = kernel.find_back("BAR", fence), after = kernel.find("BAR", fence);
    REQUIRE(fence < kernel.code.size());
    REQUIRE(before < fence);
    REQUIRE(after < kernel.code.size());
    CHECK(kernel.can_pass(before, after, "MEMBAR"));
    // Data written by other blocks must not be loaded through the non-coherent cache.
    const auto stale = [&](std::size_t from) {
      return std::any_of(kernel.code.begin() + static_cast<std::ptrdiff_t>(from), kernel.code.end(),
                         [&](const testing::SassInstruction& i) {
                           return i.reads() == part_bytes &&
                                  i.opcode.find("CONSTANT") != std::string::npos;
                         });
    };
    CHECK_FALSE(stale(after));
  }
}

}  // namespace

TEST_CASE("a reduction over blocks ends with one fence, of one thread") {
  need_tools();
  for (const int tail : {0, 1, 2})
    check_end(batch_source, normalization(tail), {"moments", "sums"});
  check_end(column_sums_source, {{"COLUMNS", 64}, {"WIDTH", 32}, {"MASKED", 1}}, {"column_sums"},
            sizeof(float));
  check_end(layer_source,
            {{"LANES", 16},
             {"CHANNELS", 16},
             {"BLOCK_ROWS", 1},
             {"SIDE_BY_SIDE", 1},
             {"SCALE", 1},
             {"CENTER", 1}},
            {"sums"});
  constexpr SparseCategoricalCrossentropyOp loss{10, true};
  constexpr AccuracyOp<std::int32_t> metric{10};
  auto loss_defines =
      list(row_defines(loss, CudaText<SparseCategoricalCrossentropyOp>::defines(loss)));
  loss_defines.emplace_back("WEIGHED", 1);
  check_end(Source{"loss", loss_text, CudaText<SparseCategoricalCrossentropyOp>::functions},
            loss_defines, {"loss"});
  auto metric_defines =
      list(row_defines(metric, CudaText<AccuracyOp<std::int32_t>>::defines(metric)));
  metric_defines.emplace_back("STATE", CudaText<AccuracyOp<std::int32_t>>::state);
  metric_defines.emplace_back("WEIGHED", 1);
  check_end(Source{"metric", metric_text, CudaText<AccuracyOp<std::int32_t>>::functions},
            metric_defines, {"metric"});
  const ConvReLUPoolOp pooled = testing::pooled(Conv2D<32, 3>::op(shape(28, 28, 1)));
  check_end(
      Source{"pooled_convolution", pooled_convolution_backward_text, pooled_convolution_functions},
      pooled_convolution_defines<MixedFloat16>(pooled, PoolTile::of(pooled, 256), 512),
      {"backward"}, sizeof(float));
  check_end(adjust_source, {}, {"gradient_pass", "unscale", "penalties"});
  check_end(lamb_source, {}, {"moments"});
}

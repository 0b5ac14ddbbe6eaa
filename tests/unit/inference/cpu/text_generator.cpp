#include "lockstep/inference/text_generator.hpp"

#include <catch2/catch_test_macros.hpp>

#include <lockstep/cpu.hpp>
#include <lockstep/text_generator.hpp>

#include "unit/inference/text_networks.hpp"

namespace ls = lockstep;
using namespace testing::text;

namespace {

/// Vectors and blocks that are full, and several threads' worth of heads.
struct Wide
    : ls::Sequential<
          ls::Input<150>, ls::Embedding<40, 64>, ls::PositionEmbedding<150>,
          ls::Repeat<2, ls::Sequential<
                            ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                        ls::MultiHeadAttention<4, 16, ls::causal>>>,
                            ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                        ls::Dense<128, ls::relu>, ls::Dense<64>>>>>,
          ls::LayerNormalization<>, ls::Dense<40>> {};

}  // namespace

TEST_CASE("TextGenerator: on the CPU the logits of each step are those of a whole window") {
  for (const int threads : {1, 2}) {
    const ls::Cpu device{.threads = threads};
    check_steps<Gpt>(1e-5, 32, device);
    check_steps<Llama<8>>(1e-5, 32, device);
    check_steps<Llama<33, 34, ls::rotary_pairs(100, 2)>>(1e-5, 8, device);
    check_steps<Windowed>(1e-5, 32, device);
    check_steps<Graphs>(1e-5, 3, device);
    check_steps<Short>(1e-5, 32, device);
    check_steps<Wide>(1e-5, 64, device);
  }
}

TEST_CASE("TextGenerator: in bfloat16 the logits of each step are those of a whole window") {
  if (!ls::detail::has_bfloat16_vectors()) SKIP("the processor has no bfloat16");
  const ls::CpuBFloat16 device{.threads = 1};
  check_steps<Gpt>(0.05, 32, device);
  check_steps<Llama<8>>(0.05, 32, device);
  check_steps<Windowed>(0.05, 32, device);
  check_steps<Wide>(0.05, 32, device);
}

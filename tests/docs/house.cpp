/// \file
/// The examples of the pages in docs/house, one section a page: the pages show what stands here.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/cluster/resolve.hpp"
#include "lockstep/data/sources/csv.hpp"
#include "lockstep/data/sources/drawn_shapes.hpp"
#include "lockstep/data/sources/npy.hpp"
#include "lockstep/fmt.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/onnx.hpp"
#include "lockstep/predictor.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/tensorboard.hpp"
#include "lockstep/text_generator.hpp"
#include "lockstep/training/checks/check_gradients.hpp"
#include "support/event_reader.hpp"
#include "support/run_kernel.hpp"
#include "support/temporary_folder.hpp"

namespace ls = lockstep;

// --8<-- [start:concepts]
/// Ends training as soon as the model is good. A misspelt hook would not compile.
struct StopWhenGood : ls::Callback {
  void on_epoch_end(int /*epoch*/, const ls::Logs& logs) override {
    if (logs["accuracy"] > 0.9) control().stop_training();
  }
};

static_assert(ls::Layer<ls::Dense<10>> && ls::Loss<ls::Huber> && ls::Optimizer<ls::Adam>);
static_assert(ls::Device<ls::Reference<double>>);
static_assert(ls::HasKernel<ls::DenseOp, ls::Reference<double>>);
static_assert(ls::Strategy<ls::Mirrored<ls::Reference<float>>>);
// --8<-- [end:concepts]

// --8<-- [start:layers]
struct Tiny : ls::Sequential<ls::Input<28, 28, 1>,
                             ls::Conv2D<8, 3, ls::same, ls::strides(2), ls::relu, ls::he_normal>,
                             ls::GlobalAveragePooling2D, ls::Dropout<ls::rate(0.25f)>,
                             ls::Dense<10, ls::kernel_regularizer(ls::L2{1e-4})>> {};

static_assert(Tiny::parameter_count == 8 * (3 * 3 + 1) + 10 * (8 + 1));
static_assert(ls::Conv2D<8, 3, ls::same, ls::strides(2)>::op(Tiny::input_shape).out() ==
              ls::shape(14, 14, 8));
// --8<-- [end:layers]

// --8<-- [start:model]
template <int Filters>
struct Branch
    : ls::Sequential<ls::Conv2D<Filters, 3, ls::same>, ls::ReLU, ls::Conv2D<Filters, 3, ls::same>> {
};
template <int Filters>
struct Block : ls::Sequential<ls::Residual<Branch<Filters>>, ls::ReLU> {};

struct Small : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2D<16, 1>, ls::Repeat<3, Block<16>>,
                              ls::Flatten, ls::Dense<10>> {};

static_assert(Small::output_shape == ls::shape(10));
static_assert(Small::graph.nodes == 1 + 3 * 5 + 2);  // a block: two Conv2D, two ReLU, one sum
static_assert(Small::parameter_count ==
              16 * (3 + 1) + 3 * 2 * 16 * (9 * 16 + 1) + 10 * (8 * 8 * 16 + 1));
// --8<-- [end:model]

// --8<-- [start:skips]
template <int Filters, class Inner>
struct Level  // of a U-Net: the image itself goes around what the inner levels make of it
    : ls::Sequential<ls::Conv2D<Filters, 3, ls::same, ls::relu>,
                     ls::Parallel<ls::Concatenate, ls::Identity,
                                  ls::Sequential<ls::MaxPooling2D<>, Inner, ls::UpSampling2D<>>>,
                     ls::Conv2D<Filters, 3, ls::same, ls::relu>> {};
struct UNet : ls::Sequential<ls::Input<32, 32, 1>, Level<8, Level<16, ls::Conv2D<32, 1>>>,
                             ls::Residual<ls::Conv2D<8, 1>>,  // + ls::Identity, its default skip
                             ls::Conv2D<1, 1>> {};

static_assert(UNet::output_shape == ls::shape(32, 32, 1));
// --8<-- [end:skips]

// --8<-- [start:blocks]
struct Encoder : ls::Sequential<ls::Input<784>, ls::Dense<64, ls::relu>, ls::Dense<8>> {
  static constexpr std::string_view name = "encoder";
};
struct Decoder : ls::Sequential<ls::Input<8>, ls::Dense<64, ls::relu>, ls::Dense<784>> {
  static constexpr std::string_view name = "decoder";
};
struct Autoencoder : ls::Sequential<ls::Input<784>, Encoder, Decoder> {};
// --8<-- [end:blocks]

// --8<-- [start:augmented]
struct Augmented
    : ls::Sequential<ls::Input<32, 32, 3>, ls::Rescaling<1.0 / 255>,
                     ls::RandomRotation<ls::factor(0.1)>,  // up to 36 degrees either way
                     ls::RandomTranslation<ls::factor(0.1), ls::factor(-0.2, 0.1)>, ls::Flatten,
                     ls::Dense<10>> {};
// --8<-- [end:augmented]

// --8<-- [start:recurrent]
struct Series : ls::Sequential<ls::Input<48, 6>, ls::GRU<32, ls::return_sequences>,
                               ls::LSTM<16, ls::go_backwards, ls::dropout(0.2)>, ls::Dense<1>> {};

static_assert(Series::parameter_count == 3 * 32 * (6 + 32 + 2) + 4 * 16 * (32 + 16 + 1) + 16 + 1);
// --8<-- [end:recurrent]

// --8<-- [start:masked]
struct Sentences : ls::Sequential<ls::Input<80>, ls::Embedding<20'000, 64, ls::mask_zero>,
                                  ls::Bidirectional<ls::LSTM<64, ls::return_sequences>>,
                                  ls::GRU<32>, ls::Dense<1, ls::sigmoid>> {};
// --8<-- [end:masked]

// --8<-- [start:states]
struct Translator
    : ls::Graph<ls::In<"source", ls::Integers<40>>, ls::In<"target", ls::Integers<40>>,
                ls::Let<"e", ls::From<"source">, ls::Embedding<8'000, 64, ls::mask_zero>,
                        ls::LSTM<128, ls::return_state>>,
                ls::Let<"words", ls::From<"target">, ls::Embedding<8'000, 64>>,
                ls::Let<"d", ls::From<"words", "e/h", "e/c">,
                        ls::LSTM<128, ls::return_sequences, ls::initial_state>>,
                ls::Out<"next", ls::From<"d">, ls::Dense<8'000>>> {};
// --8<-- [end:states]
static_assert(Translator::output_shape == ls::shape(40, 8'000));

// --8<-- [start:allowed]
struct Attending
    : ls::Graph<ls::In<"x", 12, 32>, ls::In<"allowed", 12, 12>,
                ls::Out<"y", ls::From<"x", "allowed">,
                        ls::MultiHeadAttention<4, 8, ls::causal, ls::attention_mask>>> {};
// --8<-- [end:allowed]
static_assert(Attending::output_shape == ls::shape(12, 32));

// --8<-- [start:pairs]
/// Contrastive loss (Hadsell et al., 2006) with squared distances d: the sum over pairs of d for
/// examples of the same class, max(0, 1 - d) for others.
struct PairsOp {
  ls::Shape out;
  bool operator==(const PairsOp&) const = default;
};
struct Pairs {
  using target_type = std::int32_t;
  static constexpr std::string_view name = "pairs";
  static constexpr bool accepts(ls::Shape out) { return out.rank == 1; }
  static constexpr ls::Shape target_shape(ls::Shape) { return {}; }  // one label
  static constexpr PairsOp op(ls::Shape out) { return {out}; }
};
template <ls::HostDevice D>
struct ls::Kernel<PairsOp, D> : ls::KernelTraits {
  static void run(const PairsOp& op, const ls::LossIo<D, std::int32_t>& io) {
    using T = typename D::real;
    const std::size_t size = op.out.size();
    if (io.gradient != nullptr) std::fill_n(io.gradient, io.count * size, T(0));
    for (std::size_t a = 0; a < io.count; ++a)
      for (std::size_t b = 0; b < a; ++b) add_pair(io, a, b, size);
  }
  static void add_pair(const ls::LossIo<D, std::int32_t>& io, std::size_t a, std::size_t b,
                       std::size_t size) {
    using T = typename D::real;
    const T *p = io.prediction + a * size, *q = io.prediction + b * size;
    T d = 0;
    for (std::size_t i = 0; i < size; ++i) d += (p[i] - q[i]) * (p[i] - q[i]);
    const bool alike = io.target[a] == io.target[b];
    if (!alike && d >= 1) return;
    *io.sum += static_cast<double>(alike ? d : 1 - d);
    if (io.gradient == nullptr) return;
    const T slope = static_cast<T>((alike ? 2 : -2) * io.scale);
    for (std::size_t i = 0; i < size; ++i) {
      io.gradient[a * size + i] += slope * (p[i] - q[i]);
      io.gradient[b * size + i] -= slope * (p[i] - q[i]);
    }
  }
};
// --8<-- [end:pairs]

// --8<-- [start:plan]
struct Digits
    : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                     ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};
constexpr auto& plan = ls::plan<Digits, ls::Reference<float>>;

static_assert(plan.arena_bytes(64) < 16 << 20);      // activations and gradients of 64 images
static_assert(plan.memory_bytes(64, 2) < 24 << 20);  // all that a replica holds with Adam
static_assert(plan.wire_bytes(2) == 4 * 347'146);    // what each of two processes sends in a step
static_assert(plan.buckets.size() == 2);             // the first leaves while backward goes on
static_assert(plan.buckets[0].layer == "dense");     // as soon as this layer's backward is done
static_assert(plan.activations[2].layer == "max_pooling2d");
static_assert(plan.activations[2].bytes == 13 * 13 * 32 * 4);
// --8<-- [end:plan]

namespace {

struct Line : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};

/// y = 2 x for x = 0, 1, ..., 99, divided by 100.
auto line() {
  std::vector<float> x(100), y(100);
  for (std::size_t i = 0; i < 100; ++i) {
    x[i] = static_cast<float>(i) / 100;
    y[i] = 2 * x[i];
  }
  return ls::tensors(x, ls::shape(1), y, ls::shape(1));
}

}  // namespace

TEST_CASE("the example of a label per pixel") {
  // --8<-- [start:positions]
  struct Segmentation : ls::Sequential<ls::Input<8, 8, 3>, ls::Conv2D<16, 3, ls::same, ls::relu>,
                                       ls::Conv2D<21, 1>> {};  // 21 classes for each pixel
  std::vector<float> images(20 * 8 * 8 * 3, 0.5f);
  std::vector<std::int32_t> labels(20 * 8 * 8, 7);
  labels[0] = 255;  // nobody knows what this pixel shows
  const auto train = ls::tensors(images, ls::shape(8, 8, 3), labels, ls::shape(8, 8));
  ls::Model model{Segmentation{}, ls::OneDevice<ls::Reference<float>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true, .ignore_class = 255},
                  ls::Adam{.learning_rate = 0.01}, ls::Accuracy{.ignore_class = 255}};
  model.fit(train | ls::batch(5), {.epochs = 3, .class_weight = {{7, 0.5}}});
  // --8<-- [end:positions]
  CHECK(model.evaluate(train | ls::batch(5))["accuracy"] == 1);
}

TEST_CASE("the example of core") {
  // --8<-- [start:core]
  constexpr ls::Shape image = ls::shape(28, 28, 1);  // no batch: that is a run-time number
  static_assert(image.size() == 784 && image.channels() == 1);

  // 61 examples on 3 replicas: 21, 20, 20
  static_assert(ls::slice_of(61, 3, 1) == ls::Slice{21, 20});

  // The same key and counter give the same numbers, on any thread and any machine.
  ls::Philox a(ls::mix(7, ls::hash_name("dropout")), 1000);
  ls::Philox b(ls::mix(7, ls::hash_name("dropout")), 1000);
  CHECK(a.uniform() == b.uniform());

  const std::vector<float> pixels(2 * 784);
  const ls::TensorView<const float> images(pixels, image);
  CHECK(images.count() == 2);
  CHECK_THROWS_AS(ls::TensorView<const float>({pixels.data(), 785}, image), ls::UsageError);
  // --8<-- [end:core]
}

TEST_CASE("the example of inference") {
  ls::Model model{Digits{}, ls::OneDevice<ls::Reference<float>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  model.save_weights(path);
  const std::vector<float> image(Digits::input_shape.size(), 0.5f);
  using Device = ls::Reference<float>;
  // --8<-- [start:inference]
  ls::Predictor<Digits, Device> predictor(path);  // Device: ls::Cpu in a program
  std::vector<float> scores(10);
  predictor(image, scores);      // from any thread
  predictor.load_weights(path);  // also while others predict
  // --8<-- [end:inference]
  const auto expected = model.predict(image);
  CHECK(std::equal(scores.begin(), scores.end(), expected.row(0).begin()));
}

namespace {
/// 40 tokens, windows of 16.
struct Gpt
    : ls::Sequential<
          ls::Input<16>, ls::Shared<"tokens", ls::Embedding<40, 32>>, ls::PositionEmbedding<16>,
          ls::Repeat<2, ls::Sequential<
                            ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                        ls::MultiHeadAttention<4, 8, ls::causal>>>,
                            ls::Residual<ls::Sequential<ls::LayerNormalization<>,
                                                        ls::Dense<64, ls::gelu>, ls::Dense<32>>>>>,
          ls::LayerNormalization<>, ls::TiedDense<"tokens">> {};
}  // namespace

TEST_CASE("the example of text") {
  using Device = ls::Reference<float>;
  ls::Model model{Gpt{}, ls::OneDevice<Device>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{}};
  const TemporaryFolder folder;
  const std::string path = folder / "gpt.safetensors";
  model.save_weights(path);
  const std::vector<int> prompt{1, 2, 3};
  std::vector<int> seen;
  const auto show = [&](int token) { seen.push_back(token); };
  // --8<-- [start:text]
  ls::TextGenerator<Gpt, Device> generator(path);  // or of a model: generator(model)
  const std::vector<int> tokens = generator.generate(
      prompt, {.tokens = 20, .sampler = {.temperature = 0.8f, .top_k = 10, .seed = 1}}, show);
  // --8<-- [end:text]
  CHECK(tokens.size() == 20);
  CHECK(seen == tokens);
  // --8<-- [start:tokens]
  ls::TokenSequence<Device> text = generator.sequence();  // caches of one sequence, in one thread
  ls::Sampler sample({.temperature = 0.8f, .top_k = 10, .seed = 1});
  std::span<const float> logits = text.append(prompt);  // of the next token
  while (text.size() < text.context()) logits = text.append(sample(logits));
  // --8<-- [end:tokens]
  CHECK(text.size() == 16);
  CHECK(std::equal(tokens.begin(), tokens.begin() + 13, text.tokens().begin() + 3));
}

TEST_CASE("the example of onnx") {
  ls::Model model{Digits{}, ls::OneDevice<ls::Reference<float>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::SGD{}};
  const auto folder = std::filesystem::temp_directory_path();
  const std::string path = (folder / ("house." + std::to_string(::getpid()) + ".onnx")).string();
  // --8<-- [start:onnx]
  ls::export_onnx(model, path);
  // Python: onnxruntime.InferenceSession(path).run(["output"], {"input": images})
  // --8<-- [end:onnx]
  CHECK(std::filesystem::file_size(path) > sizeof(float) * Digits::parameter_count);
  std::filesystem::remove(path);
}

TEST_CASE("the example of optimizers") {
  // --8<-- [start:optimizers]
  // A rate that rises for 100 steps and then falls along a cosine.
  const ls::Schedule rate = ls::CosineDecay{
      .initial_learning_rate = 0, .decay_steps = 1000, .warmup_target = 0.1, .warmup_steps = 100};
  CHECK(std::abs(rate(50) - 0.05) < 1e-12);
  CHECK(std::abs(rate(100 + 500) - 0.05) < 1e-12);
  CHECK(rate(100 + 1000) < 1e-12);

  const ls::AdamW optimizer{.learning_rate = rate,
                            .weight_decay = 0.01,
                            .with = {.global_clipnorm = 1,
                                     .exclude_from_weight_decay = {"bias"},
                                     .gradient_accumulation_steps = 4}};
  // --8<-- [end:optimizers]
  ls::Model model{Line{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{}, optimizer};
  model.fit(line() | ls::batch(10), {.epochs = 1, .progress = ls::ProgressStyle::none});
  CHECK(model.steps() == 10);
}

TEST_CASE("the example of data") {
  // --8<-- [start:data]
  const auto flip = [](auto& example, ls::Philox& random) {  // 28 rows of 28 pixels
    if (random.uniform() < 0.5) return;
    for (std::size_t row = 0; row < 28; ++row)
      std::reverse(&example.x[28 * row], &example.x[28 * row] + 28);
  };
  const auto train = ls::datasets::digits().train() | ls::take(1'000) | ls::rescale(1.0f / 255) |
                     ls::cache | ls::map(flip) | ls::shuffle(1'000) | ls::batch(64) |
                     ls::prefetch(2);
  CHECK(train.shape() == ls::shape(28, 28, 1));
  CHECK(train.size() == 1'000u);
  CHECK(train.batch_size() == 64);

  // The order is a function of (seed, pass): nothing has to be read to know it.
  auto order = train.indices({.seed = 1, .number = 0}), again = train.indices({1, 0});
  CHECK(order.next() == again.next());
  // --8<-- [end:data]
}

TEST_CASE("the example of augmentation") {
  // --8<-- [start:augmentation]
  const auto train = ls::datasets::shapes().train() | ls::shuffle(50'000) |
                     ls::resize_with_crop_or_pad(40, 40) | ls::random_crop(32, 32) |
                     ls::random_flip_left_right | ls::per_image_standardization | ls::batch(128) |
                     ls::prefetch(2);
  // The first two in one operation: ls::random_crop(32, 32, {.padding = 4})
  // --8<-- [end:augmentation]
  CHECK(train.shape() == ls::shape(32, 32, 3));
}

TEST_CASE("the example of numpy's arrays") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("lockstep_npy_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const auto write = [&](const char* name, std::string header, std::string_view data) {
    header.resize(117, ' ');
    std::ofstream(folder / name) << std::string_view("\x93NUMPY\1\0\x76\0", 10) << header << '\n'
                                 << data;
  };
  write("images.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 2)}", "abcd");
  write("labels.npy", "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}", "\1\2");
  const std::filesystem::path images = folder / "images.npy", labels = folder / "labels.npy";
  // --8<-- [start:npy]
  const auto train =
      ls::tensors<std::uint8_t, std::int32_t>(ls::read_npy(images), ls::read_npy(labels));
  // --8<-- [end:npy]
  CHECK(train.shape() == ls::shape(1, 2));
  CHECK(train.targets()[1] == 2);
  std::filesystem::remove_all(folder);
}

TEST_CASE("the example of a table") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("lockstep_table_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  const std::filesystem::path train_file = folder / "train.csv", test_file = folder / "test.csv";
  std::ofstream(train_file) << "id,sex,age,port,fare\n1,male,22,S,7.25\n2,female,38,C,71.28\n";
  std::ofstream(test_file) << "port,fare,age,sex\nC,8.05,35,male\n";
  // --8<-- [start:table]
  const ls::CsvOptions options =
      ls::adapt_csv(train_file, {.target = "fare", .drop = {"id"}, .one_hot = {"sex", "port"}});
  const auto train = ls::read_csv<float, float>(train_file, options);
  const auto test = ls::read_csv<float, float>(test_file, options);  // whatever its columns' order
  // --8<-- [end:table]
  CHECK(train.shape() == ls::shape(5));
  CHECK(std::vector<float>(test.features().begin(), test.features().end()) ==
        std::vector{0.f, 1.f, 35.f, 1.f, 0.f});
  std::filesystem::remove_all(folder);
}

TEST_CASE("the example of an autoencoder") {
  // --8<-- [start:autoencoder]
  const auto clean = ls::datasets::digits().train() | ls::take(200) | ls::rescale(1.0f / 255) |
                     ls::cache | ls::features_as_targets;
  const auto noisy = clean | ls::map([](auto& example, ls::Philox& draws) {
                       for (float& v : example.x) v += 0.3f * static_cast<float>(draws.normal());
                     });
  struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<16, ls::relu>,
                              ls::Dense<28 * 28, ls::sigmoid>, ls::Reshape<ls::shape(28, 28, 1)>> {
  };
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::Adam{.learning_rate = 0.01}};
  const auto history = model.fit(noisy | ls::shuffle(200) | ls::batch(20),
                                 {.epochs = 2, .progress = ls::ProgressStyle::none});
  // --8<-- [end:autoencoder]
  CHECK(history["loss"][1] < history["loss"][0]);

  // --8<-- [start:collect]
  const auto arrays = ls::collect(clean);
  CHECK(arrays.count == 200);
  CHECK(arrays.shape == ls::shape(28, 28, 1));
  CHECK(arrays.features.size() == 200 * 28 * 28);
  CHECK(arrays.targets == arrays.features);
  // --8<-- [end:collect]
}

TEST_CASE("the example of named blocks") {
  const TemporaryFolder folder;
  const std::string path = folder / "vae.safetensors";
  const auto make = [](auto net, std::uint64_t seed) {
    return ls::Model{net, ls::Seed{seed}, ls::OneDevice<ls::Reference<float>>{},
                     ls::MeanSquaredError{}, ls::SGD{}};
  };
  auto autoencoder = make(Autoencoder{}, 1), other = make(Autoencoder{}, 2);
  auto decoder = make(Decoder{}, 3);
  // --8<-- [start:block_weights]
  autoencoder.save_weights(path);  // "encoder/dense/kernel", ..., "decoder/dense_1/bias"
  decoder.load_weights(path, {.prefix = "decoder/"});

  decoder.save_weights(path);  // "dense/kernel", ..., "dense_1/bias"
  other.load_weights(path, {.only = "decoder/*", .strip = "decoder/"});
  // --8<-- [end:block_weights]
  CHECK(decoder.weights("dense_1/kernel") == autoencoder.weights("decoder/dense_1/kernel"));
  CHECK(other.weights("decoder/dense_1/kernel") == decoder.weights("dense_1/kernel"));
  CHECK(other.weights("encoder/dense/kernel") != autoencoder.weights("encoder/dense/kernel"));
}

TEST_CASE("the example of augmentation layers") {
  using Rotation = ls::RandomRotation<ls::factor(0.1)>;
  CHECK(Rotation::op(Augmented::input_shape).factor == ls::factor(-0.1, 0.1));
  CHECK(Augmented::output_shape == ls::shape(10));
}

TEST_CASE("the example of gradients") {
  struct Net : ls::Sequential<ls::Input<3>, ls::Dense<4, ls::tanh>, ls::Dense<2>> {};
  const std::vector<double> x{0.1, -0.4, 0.3, 0.2, 0.5, -0.6, -0.3, 0.4, 0.1, 0.9, 0.2, -0.7};
  const std::vector<std::int32_t> labels{0, 1, 0, 1};
  // --8<-- [start:gradients]
  // <lockstep/reference.hpp>, <lockstep/training/checks/check_gradients.hpp>
  CHECK(ls::check_gradients<ls::Input<4, 3>>(ls::LayerNormalization<>{}).error < 1e-6);  // a layer
  CHECK(ls::check_gradients(Net{}, x, labels, Pairs{}).error < 1e-6);  // a model with its loss
  // --8<-- [end:gradients]
}

TEST_CASE("the example of a loss over pairs") {
  // By hand: one pair of a class at distance 1, two pairs of two classes, of which one is near.
  const std::vector<float> predictions{0, 0, 1, 0, 0, 0.5f};
  const std::vector<std::int32_t> labels{0, 0, 1};
  struct Net : ls::Sequential<ls::Input<2>, ls::Dense<2, ls::no_bias>> {};
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, Pairs{}, ls::SGD{}};
  model.set_weights("dense/kernel", std::vector<float>{1, 0, 0, 1});
  const auto data = ls::tensors(predictions, ls::shape(2), labels);
  CHECK(std::abs(model.evaluate(data | ls::batch(3))["loss"] - (1 + 0.75) / 3) < 1e-6);
  // Without the pairs between the batches.
  CHECK(std::abs(model.evaluate(data | ls::batch(2))["loss"] - 1.0 / 3) < 1e-6);
}

TEST_CASE("the example of a monitored value") {
  const std::vector<float> x(20, 1.0f), y(20, 0.5f);
  const auto train = ls::tensors(x, ls::shape(1), y, ls::shape(1)) | ls::batch(5);
  struct Net : ls::Sequential<ls::Input<1>, ls::Dense<1>> {};
  ls::Model model{Net{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                  ls::SGD{.learning_rate = 0}};
  // --8<-- [start:monitor]
  /// A custom value, of which ls::EarlyStopping does not know that it should rise.
  struct Score : ls::Callback {
    void on_epoch_end(int epoch, const ls::Logs&) override { control().log("score", 2 - epoch); }
  };
  const auto history =
      model.fit(train, {.epochs = 10,
                        .callbacks = {std::make_shared<Score>(),
                                      ls::EarlyStopping{.monitor = "score",
                                                        .patience = 2,
                                                        .mode = ls::MonitorMode::max}},  // or "max"
                        .progress = ls::ProgressStyle::none});
  CHECK(history.epoch.size() == 3);
  // --8<-- [end:monitor]
}

TEST_CASE("the example of cluster") {
  // --8<-- [start:cluster]
  const ls::Environment environment = [](const std::string& name) -> std::optional<std::string> {
    if (name != "TF_CONFIG") return std::nullopt;
    return R"({"cluster": {"worker": ["10.0.0.1:12345", "10.0.0.2:12345"]},
               "task": {"type": "worker", "index": 1}})";
  };
  const ls::ResolvedCluster job = ls::resolve_cluster(environment);
  CHECK(job.source == "TF_CONFIG");
  CHECK(job.world_size == 2);
  CHECK(job.rank == 1u);
  CHECK(to_string(*job.chief) == "10.0.0.1:12345");
  // --8<-- [end:cluster]
}

TEST_CASE("the example of devices") {
  // --8<-- [start:devices]
  // One kernel alone, by the helper of the tests (tests/support/run_kernel.hpp).
  constexpr ls::DenseOp op = ls::Dense<2, ls::no_bias>::op(ls::shape(3));
  const std::vector<double> x{1, 2, 3};              // one example of 3
  const std::vector<double> w{1, 10, 2, 20, 3, 30};  // (3, 2)
  const std::vector<double> dy{1, 0};                // the gradient of the result
  const auto [y, dx, dx2, dw, state, more_dx] =
      testing::run_layer<ls::Reference<double>>(op, 1, x, w, dy);
  CHECK(y == std::vector<double>{14, 140});
  CHECK(dx == std::vector<double>{1, 2, 3});
  CHECK(dw == std::vector<double>{1, 0, 2, 0, 3, 0});
  // --8<-- [end:devices]
}

TEST_CASE("the example of collectives") {
  // --8<-- [start:collectives]
  ls::ThreadGroup group({.size = 2});
  std::array<std::vector<float>, 2> gradients{std::vector<float>{1, 2}, std::vector<float>{10, 20}};
  const auto replica = [&](std::size_t rank) {
    ls::ThreadGroup::Member member(group, rank);
    member.all_reduce(gradients[rank].data(), 2);
  };
  std::thread other(replica, 1);
  replica(0);
  other.join();
  CHECK(gradients[0] == std::vector<float>{11, 22});
  CHECK(gradients[1] == gradients[0]);  // the same bits in every member
  // --8<-- [end:collectives]
}

TEST_CASE("the example of strategies") {
  // --8<-- [start:strategies]
  auto session = ls::Mirrored<ls::Reference<float>>{.replicas = 3}.open();
  std::array<float, 3> sums{1, 1, 1};
  session.each([&](const auto& replica) {  // in the thread of each replica
    replica.group.all_reduce(&sums[replica.rank], 1);
  });
  CHECK(sums == std::array<float, 3>{3, 3, 3});
  // --8<-- [end:strategies]
}

TEST_CASE("the example of training") {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("lockstep_docs_" + std::to_string(::getpid()) + ".safetensors");
  // --8<-- [start:training]
  const auto digits = ls::datasets::digits();
  const auto train = digits.train() | ls::take(1'000) | ls::rescale(1.0f / 255) | ls::cache |
                     ls::shuffle(1'000) | ls::batch(50);
  struct Net : ls::Sequential<ls::Input<28, 28, 1>, ls::Flatten, ls::Dense<10>> {};
  ls::Model model{Net{},
                  ls::Seed{7},
                  ls::OneDevice<ls::Reference<float>>{},
                  ls::SparseCategoricalCrossentropy{.from_logits = true},
                  ls::Adam{.learning_rate = 0.01},
                  ls::Accuracy{}};
  const ls::History history = model.fit(train, ls::validation_split(0.2),
                                        {.epochs = 20,
                                         .callbacks = {std::make_shared<StopWhenGood>()},
                                         .progress = ls::ProgressStyle::none});
  CHECK(history.epoch.size() < 20);  // StopWhenGood ended it
  CHECK(history["val_accuracy"].back() > 0.8);

  model.save_weights(path);
  model.load_weights(path);
  // --8<-- [end:training]
  std::filesystem::remove(path);
}

TEST_CASE("the example of fmt") {
  // --8<-- [start:formatting]
  ls::Logs logs;
  logs.set("loss", 0.25);
  logs.set("accuracy", 0.9);
  CHECK(fmt::format("{}", logs) == "loss: 0.25, accuracy: 0.9");
  CHECK(fmt::format("{:>9}|{:.<9}|", ls::shape(28, 28), ls::shape(10)) == " (28, 28)|(10).....|");
  CHECK(fmt::format("{}", ls::UsageError("fit: epochs is {}", 0)) == "fit: epochs is 0");
  // --8<-- [end:formatting]
}

TEST_CASE("the example of tensorboard") {
  const TemporaryFolder folder;
  const std::string logs = folder / "logs";
  // --8<-- [start:tensorboard]
  ls::EventWriter writer(logs + "/custom");
  for (const int step : {1, 2, 3}) writer.add_scalar("queue/length", 0.5 * step, step);
  writer.add_histogram("weights", std::vector{0.1f, 0.2f, 0.2f}, 3);
  writer.add_text("note", "a **new** data set", 3);
  writer.flush();
  // --8<-- [end:tensorboard]
  CHECK(testing::scalars_in(logs + "/custom").at("queue/length") ==
        testing::Points{{1, 0.5f}, {2, 1.0f}, {3, 1.5f}});
  CHECK(testing::tensors_in(logs + "/custom").at("note").at(3).strings.at(0) ==
        "a **new** data set");
}

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/files/safetensors.hpp"
#include "unit/training/model_support.hpp"

namespace {

using namespace line;  // NOLINT: the fixture of this file

template <class E = ls::UsageError>
std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return "no error of this kind";
}
bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A temporary folder, removed at the end of the test.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() /
      ("lockstep_model_" +
       std::to_string(std::hash<std::thread::id>{}(std::this_thread::get_id())) + "_" +
       std::to_string(reinterpret_cast<std::uintptr_t>(this)));
  Folder() { std::filesystem::create_directories(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return (path / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path), {}));
  }
};

struct Cnn : ls::Sequential<ls::Input<28, 28, 1>, ls::Conv2D<32, 3>, ls::ReLU, ls::MaxPooling2D<>,
                            ls::Flatten, ls::Dense<64>, ls::ReLU, ls::Dense<10>> {};

/// A device that tracks which of its contexts are open.
struct Watched : ls::Reference<float> {
  struct Context : ls::ReferenceContext<float> {
    static inline std::set<const void*> open;
    static inline int released_after_closing = 0;
    Context() { open.insert(this); }
    Context(Context&&) noexcept : Context() {}
    ~Context() { open.erase(this); }
    void release(std::byte* p, std::size_t n) {
      released_after_closing += open.count(this) == 0;
      ls::ReferenceContext<float>::release(p, n);
    }
  };
  Context open(std::size_t, std::size_t) const { return {}; }
};

/// One output per pixel: Flatten was forgotten.
struct Pixels : ls::Sequential<ls::Input<2, 2, 1>, ls::Dense<1>> {};

}  // namespace

TEST_CASE("misuse throws a UsageError that states the fact and the remedy") {
  const auto data = points() | ls::batch(4);
  const auto fit_with = [&](auto change) {
    return message([&] {
      auto options = quiet();
      change(options);
      model().fit(data, data, options);
    });
  };
  CHECK(
      contains(fit_with([](auto& o) { o.epochs = 0; }), "fit: epochs is 0; it must be at least 1"));
  CHECK(contains(fit_with([](auto& o) { o.initial_epoch = -1; }), "fit: initial_epoch is -1"));
  CHECK(contains(fit_with([](auto& o) { o.validation_freq = 0; }), "fit: validation_freq is 0"));
  CHECK(contains(fit_with([](auto& o) { o.steps_per_epoch = 0; }), "fit: steps_per_epoch is 0"));
  CHECK(contains(fit_with([](auto& o) { o.steps_per_execution = 0; }),
                 "fit: steps_per_execution is 0; it must be at least 1"));
  CHECK(contains(fit_with([](auto& o) { o.validation_steps = 0; }), "fit: validation_steps is 0"));
  const auto minus = static_cast<std::uint64_t>(-1);
  CHECK(contains(fit_with([=](auto& o) { o.steps_per_epoch = minus; }),
                 "fit: steps_per_epoch is -1; it must be at least 1"));
  CHECK(contains(fit_with([=](auto& o) { o.validation_steps = minus; }),
                 "fit: validation_steps is -1; it must be at least 1"));
  CHECK(contains(fit_with([=](auto& o) { o.steps_per_execution = minus; }),
                 "fit: steps_per_execution is -1; it must be at least 1"));
  CHECK(contains(fit_with([=](auto& o) { o.verify_every = minus; }),
                 "fit: verify_every is -1; it must be at least 0"));
  CHECK(contains(fit_with([](auto& o) { o.epochs = -3; }), "fit: epochs is -3"));
  CHECK(contains(fit_with([](auto& o) { o.callbacks = {nullptr}; }), "callbacks: element 0"));

  struct Case {
    const char* text;
    std::function<void()> call;
  };
  const auto two_wide =
      ls::tensors(std::vector<double>(4), ls::shape(2), std::vector<double>(2), ls::shape(1));
  const auto two_targets =
      ls::tensors(std::vector<double>(2), ls::shape(1), std::vector<double>(4), ls::shape(2));
  const auto one_target = ls::tensors(std::vector<double>(2), ls::shape(1), std::vector<double>(2));
  const auto wrong_label =
      ls::tensors(std::vector<float>(6), ls::shape(2), std::vector<std::int32_t>{0, 2, 3});
  const auto negative =
      ls::tensors(std::vector<float>(2), ls::shape(2), std::vector<std::int32_t>{-1});
  const auto endless = points() | ls::repeat() | ls::batch(4);
  const auto empty = points() | ls::skip(10) | ls::batch(4);
  const Case cases[] = {
      {"data: the examples have shape (2), but the model expects (1)",
       [&] { model().fit(two_wide | ls::batch(2), quiet()); }},
      {"data: the examples have shape (2), but the model expects (1)",
       [&] { model().predict(two_wide | ls::batch(2)); }},
      {"data: the targets have shape (2), but the model expects (1)",
       [&] { model().evaluate(two_targets | ls::batch(2)); }},
      {"data: the targets have shape (), but the model expects (1); give that shape where the data "
       "are made",
       [&] { model().evaluate(one_target | ls::batch(2)); }},
      {"data: the targets have shape (1), but the model expects (2, 2, 1); put Flatten or "
       "GlobalAveragePooling2D before the last layer",
       [&] {
         ls::Model m{Pixels{}, ls::OneDevice<ls::Reference<float>>{}, ls::BinaryCrossentropy{},
                     ls::SGD{}};
         m.fit(ls::tensors(std::vector<float>(4), ls::shape(2, 2, 1), std::vector<float>(1),
                           ls::shape(1)) |
                   ls::batch(1),
               quiet());
       }},
      {"example 2 of the batch has label 3, but the model's outputs are classes 0 to 2",
       [&] { classifier().fit(wrong_label | ls::batch(3), quiet()); }},
      {"has label -1", [&] { classifier().evaluate(negative | ls::batch(1)); }},
      {"fit: the data never end, so an epoch has no end; set .steps_per_epoch",
       [&] { model().fit(endless, quiet()); }},
      {"fit: the validation data never end; set .validation_steps",
       [&] { model().fit(data, endless, quiet()); }},
      {"evaluate: the data never end; set .steps", [&] { model().evaluate(endless); }},
      {"predict: the data never end; set .steps", [&] { model().predict(endless); }},
      {"fit: the training data are empty", [&] { model().fit(empty, quiet()); }},
      {"evaluate: the data are empty", [&] { model().evaluate(empty); }},
      {"train_on_batch: the batch is empty", [&] { model().train_on_batch({}, {}); }},
      {"train_on_batch: 2 examples need 2 target values, not 1",
       [&] { model().train_on_batch(std::vector<double>(2), std::vector<double>(1)); }},
      {"test_on_batch: 3 values are not a whole number of examples of shape (2), which have 2",
       [&] { classifier().test_on_batch(std::vector<float>(3), std::vector<std::int32_t>(1)); }},
      {"labels: example 0 of the batch has label 9",
       [&] { classifier().train_on_batch(std::vector<float>(2), std::vector<std::int32_t>{9}); }},
      {"predict: 3 values are not a whole number of examples of shape (2)",
       [&] { classifier().predict(std::vector<float>(3)); }},
      {"predict: batch size is -1; it must be at least 1",
       [&] { model().predict(xs(), static_cast<std::size_t>(-1)); }},
      {"evaluate: steps is -1; it must be at least 0",
       [&] { model().evaluate(data, {.steps = -1}); }},
      {"predict: steps is -5", [&] { model().predict(data, {.steps = -5}); }},
      {"predict: batch size is 0; it must be at least 1", [&] { model().predict(xs(), 0); }},
      {"parameter 'dense/weight': no such parameter; the model has dense/kernel, dense/bias",
       [&] { model().weights("dense/weight"); }},
      {"set_weights: dense/kernel has shape (1, 1), that is 1 values; got 2",
       [&] { model().set_weights("dense/kernel", std::vector<double>(2)); }},
      {"parameter '': no such parameter", [&] { model().gradients(""); }},
      {"learning rate -1", [&] { model().set_learning_rate(-1); }},
      {"sgd momentum", [&] { model({.momentum = 2}); }},
      {"top_k_categorical_accuracy k is -1",
       [&] {
         ls::Model{Net{}, Double{}, ls::MeanSquaredError{}, ls::SGD{},
                   ls::TopKCategoricalAccuracy{.k = static_cast<std::size_t>(-1)}};
       }},
      {"top_k_categorical_accuracy k",
       [&] {
         ls::Model{Net{}, Double{}, ls::MeanSquaredError{}, ls::SGD{},
                   ls::TopKCategoricalAccuracy{.k = 0}};
       }},
      {"huber delta", [&] { ls::Model{Net{}, Double{}, ls::Huber{.delta = -1}, ls::SGD{}}; }},
  };
  for (const auto& c : cases) {
    const std::string text = message(c.call);
    INFO(c.text << "  but: " << text);
    CHECK(contains(text, c.text));
  }
}

TEST_CASE("an exception in a callback leaves the model usable") {
  auto m = model();
  auto options = quiet();
  auto record = std::make_shared<Recorder>();
  options.callbacks = {record,
                       ls::LambdaCallback{.on_train_batch_end = [](std::size_t b, const ls::Logs&) {
                         if (b == 1) throw std::runtime_error("mine");
                       }}};
  CHECK(message<std::runtime_error>([&] { m.fit(points() | ls::batch(2), options); }) == "mine");
  CHECK(m.steps() == 2);
  CHECK_THROWS_AS(record->control(), ls::UsageError);
  CHECK(m.fit(points() | ls::batch(2), quiet())["loss"].size() == 1);
  CHECK(m.steps() == 7);
}

TEST_CASE("steps of a failed execution do not appear in later logs") {
  auto m = model();
  auto options = quiet();
  options.steps_per_execution = 5;
  const auto broken = points() | ls::map([](auto& example) {
                        if (example.y[0] == static_cast<float>(ys()[7]))
                          throw std::runtime_error("mine");
                      });
  CHECK(message<std::runtime_error>([&] { m.fit(broken | ls::batch(2), options); }) == "mine");
  CHECK(m.steps() == 3);
  const auto x = xs(), y = ys();
  const double loss = m.test_on_batch(x, y)["loss"];
  CHECK(m.test_on_batch(x, y)["loss"] == loss);
  auto same = model();
  same.set_weights("dense/kernel", m.weights("dense/kernel"));
  same.set_weights("dense/bias", m.weights("dense/bias"));
  CHECK(same.test_on_batch(x, y)["loss"] == loss);
}

TEST_CASE("weights are read and written by name, and a set of them is the whole model") {
  auto a = classifier(1), b = classifier(2);
  CHECK(a.weights_sha256() != b.weights_sha256());
  for (const auto& p :
       ls::Model<Classes, Float, ls::SparseCategoricalCrossentropy, ls::SGD>::parameters())
    b.set_weights(p.name, a.weights(p.name));
  CHECK(a.weights_sha256() == b.weights_sha256());
  const auto of_a = a.predict(classes() | ls::batch(7)),
             of_b = b.predict(classes() | ls::batch(40));
  CHECK(std::ranges::equal(of_a.elements(), of_b.elements()));
}

TEST_CASE("temporary predictions have no views, which would outlive them") {
  const auto has_views = []<class P>(P&&) {
    return requires(P&& p) { static_cast<P&&>(p).elements(); } || requires(P&& p) {
      static_cast<P&&>(p).row(0);
    } || requires(P&& p) { static_cast<P&&>(p).view(); };
  };
  const ls::Predictions<float> kept({1, 2}, ls::shape(1));
  CHECK(has_views(kept));
  CHECK(!has_views(ls::Predictions<float>({1, 2}, ls::shape(1))));
}

TEST_CASE("a model can be moved, by assignment too") {
  auto a = classifier(), same = classifier();
  const auto data = classes() | ls::batch(16);
  a.fit(data, quiet());
  same.fit(data, quiet());
  auto moved = std::move(a);
  moved.fit(data, quiet(2));
  auto target = classifier(9);
  target.fit(data, quiet());
  target = std::move(moved);
  target.fit(data, quiet());
  for (int i = 0; i < 3; ++i) same.fit(data, quiet());
  CHECK(target.weights_sha256() == same.weights_sha256());
  CHECK(target.steps() == same.steps());
  using M = decltype(a);
  static_assert(!std::is_copy_constructible_v<M> && std::is_nothrow_move_constructible_v<M>);
}

TEST_CASE("a moved model does not refer to its old address") {
  auto expected = model<Penalised>();
  using M = decltype(expected);
  std::vector<std::byte> place(sizeof(M) + alignof(M));
  void* at = place.data();
  std::size_t room = place.size();
  REQUIRE(std::align(alignof(M), sizeof(M), at, room) != nullptr);
  M* const first = new (at) M(model<Penalised>());
  M moved(std::move(*first));
  std::destroy_at(first);
  std::fill(place.begin(), place.end(), std::byte{0xFF});
  for (M* const m : {&expected, &moved}) m->fit(points() | ls::batch(5), quiet(2));
  CHECK(moved.weights_sha256() == expected.weights_sha256());
}

TEST_CASE("memory is freed while its context is open") {
  struct Plain : ls::Sequential<ls::Input<3>, ls::ReLU> {};
  using M = ls::Model<Plain, ls::OneDevice<Watched>, ls::MeanSquaredError, ls::SGD>;
  const auto make = [] { return M{Plain{}, {}, {}, {}}; };
  {
    auto a = make(), b = make();
    a.train_on_batch(std::vector<float>(3), std::vector<float>(3));
    a = std::move(b);
    a.train_on_batch(std::vector<float>(3), std::vector<float>(3));
  }
  CHECK(Watched::Context::released_after_closing == 0);
  CHECK(Watched::Context::open.empty());
}

TEST_CASE("two models in one process do not disturb each other") {
  auto alone = classifier(3), a = classifier(3), b = classifier(4);
  const auto data = classes() | ls::batch(8) | ls::prefetch(2);
  alone.fit(data, quiet(2));
  std::thread other([&] { b.fit(data, quiet(3)); });
  a.fit(data, quiet(2));
  other.join();
  CHECK(a.weights_sha256() == alone.weights_sha256());
  auto c = classifier(4);
  c.fit(data, quiet(3));
  CHECK(b.weights_sha256() == c.weights_sha256());
}

TEST_CASE("memory is counted in bytes, and activations by the largest batch so far") {
  auto m = classifier();
  const std::size_t count = 2 * 8 + 8 + 8 * 3 + 3;
  CHECK(m.memory().weights == count * sizeof(float));
  CHECK(m.memory().gradients == count * sizeof(float));
  CHECK(m.memory().optimizer == count * sizeof(float));  // momentum
  CHECK(m.memory().working == 0);
  m.predict(classes() | ls::batch(4));
  const std::size_t four = m.memory().working;
  CHECK(four >= 4 * 8 * sizeof(float));
  m.predict(classes() | ls::batch(8));
  CHECK(m.memory().working == 2 * four);
  m.predict(classes() | ls::batch(4));
  CHECK(m.memory().working == 2 * four);
  CHECK(m.memory().total() == 3 * count * sizeof(float) + 2 * four);
}

TEST_CASE("the summary of the seed CNN has Keras' rows and numbers") {
  // The optimizer has two slots: 347,146 * 2.
  ls::Model m{Cnn{}, Float{}, ls::SparseCategoricalCrossentropy{.from_logits = true}, ls::Adam{}};
  const std::string text = m.summary();
  CAPTURE(text);
  for (const char* part :
       {"conv2d (Conv2D)", "(None, 26, 26, 32)", " 320 ", "re_lu (ReLU)",
        "max_pooling2d (MaxPooling2D)", "(None, 13, 13, 32)", "flatten (Flatten)", "(None, 5408)",
        "dense (Dense)", "346,176", "re_lu_1 (ReLU)", "dense_1 (Dense)", "(None, 10)", " 650 ",
        "Total params: 347,146 (1.32 MB)", "Trainable params: 347,146 (1.32 MB)",
        "Non-trainable params: 0 (0.00 B)", "Optimizer params: 694,292 (2.65 MB)"})
    CHECK(contains(text, part));
  CHECK(!contains(text, "Connected to"));  // each layer follows the one before
  CHECK(m.fused().empty());                // the reference device fuses nothing
}

TEST_CASE("the summary of a model with branches shows each layer's inputs") {
  struct Branched
      : ls::Sequential<ls::Input<6>, ls::Dense<4, ls::relu>,
                       ls::Residual<ls::Sequential<ls::Dense<5>, ls::Dense<4>>>,
                       ls::Parallel<ls::Concatenate, ls::Identity, ls::Dense<3>, ls::Dense<2>>,
                       ls::Dense<1>> {};
  ls::Model m{Branched{}, Float{}, ls::MeanSquaredError{}, ls::SGD{}};
  const std::string text = m.summary();
  CAPTURE(text);
  CHECK(contains(text, "Param # ┃ Connected to "));
  // Equal to the summary of Keras' functional model of the same layers.
  const std::pair<const char*, const char*> rows[] = {
      {"dense (Dense)", "input"},
      {"dense_1 (Dense)", "dense"},
      {"dense_2 (Dense)", "dense_1"},
      {"add (Add)", "dense_2, dense"},
      {"dense_3 (Dense)", "add"},
      {"dense_4 (Dense)", "add"},
      {"concatenate (Concatenate)", "add, dense_3, dense_4"},
      {"dense_5 (Dense)", "concatenate"}};
  for (const auto& [layer, to] : rows) {
    const std::size_t row = text.find(std::string("│ ") + layer);
    REQUIRE(row != text.npos);
    const std::string line = text.substr(row, text.find('\n', row) - row);
    INFO(line);
    CHECK(contains(line, std::string(" │ ") + to + " "));
  }
}

TEST_CASE("saved weights have Keras' names and shapes, and load bit for bit") {
  const Folder folder;
  auto a = classifier(1), b = classifier(2);
  a.fit(classes() | ls::batch(8), quiet());
  a.save_weights(folder / "a.safetensors");
  CHECK(folder.files() == 1);  // no temporary file is left
  const auto file = ls::SafetensorsFile::read(folder / "a.safetensors");
  CHECK(file.tensors().size() == 4);
  CHECK(file.at("dense/kernel").shape == std::vector<std::uint64_t>{2, 8});
  CHECK(file.values<float>("dense_1/bias") == a.weights("dense_1/bias"));
  b.load_weights(folder / "a.safetensors");
  CHECK(b.weights_sha256() == a.weights_sha256());
  b.save_weights(folder / "a.safetensors");  // over an old file
  CHECK(folder.files() == 1);
}

TEST_CASE("a model with normalization evaluates to the same numbers after saving and loading") {
  struct Net : ls::Sequential<ls::Input<2>, ls::Dense<8>, ls::BatchNormalization<>, ls::ReLU,
                              ls::Dense<3>> {};
  const auto made = [](std::uint64_t seed) {
    return ls::Model{Net{},
                     ls::Seed{seed},
                     ls::OneDevice<ls::Reference<float>>{},
                     ls::SparseCategoricalCrossentropy{.from_logits = true},
                     ls::SGD{.learning_rate = 0.1},
                     ls::Accuracy{}};
  };
  const Folder folder;
  auto trained = made(1), loaded = made(2);
  trained.fit(classes() | ls::batch(8), quiet());
  trained.save_weights(folder / "a.safetensors");
  const auto test = classes() | ls::batch(7);
  const auto expected = trained.evaluate(test, {.progress = ls::ProgressStyle::none});
  CHECK(loaded.evaluate(test, {.progress = ls::ProgressStyle::none})["loss"] != expected["loss"]);
  loaded.load_weights(folder / "a.safetensors");
  const auto again = loaded.evaluate(test, {.progress = ls::ProgressStyle::none});
  CHECK(again["loss"] == expected["loss"]);
  CHECK(again["accuracy"] == expected["accuracy"]);
}

TEST_CASE(
    "a weights file that does not fit is rejected with the tensor's name, and changes nothing") {
  const Folder folder;
  const std::vector<float> numbers(64);
  const auto bytes = std::as_bytes(std::span(numbers));
  const auto tensor = [&](const char* name, std::vector<std::uint64_t> shape,
                          ls::DType type = ls::DType::float32) {
    std::size_t size = ls::size_of(type);
    for (const std::uint64_t extent : shape) size *= extent;
    return ls::SafetensorsEntry{name, type, shape, bytes.subspan(0, size)};
  };
  const auto kernel = tensor("dense/kernel", {2, 8}), bias = tensor("dense/bias", {8}),
             kernel1 = tensor("dense_1/kernel", {8, 3}), bias1 = tensor("dense_1/bias", {3});
  struct Case {
    std::vector<ls::SafetensorsEntry> tensors;
    const char* tensor;
    const char* fact;
  };
  const Case cases[] = {
      {{kernel, bias, kernel1}, "'dense_1/bias'", "there is no tensor"},
      {{kernel, bias, kernel1, bias1, tensor("dense_2/bias", {3})},
       "'dense_2/bias'",
       "is not in the model"},
      {{tensor("dense/kernel", {8, 2}), bias, kernel1, bias1},
       "'dense/kernel'",
       "has shape (8, 2), but the model's is (2, 8)"},
      {{kernel, tensor("dense/bias", {1, 8}), kernel1, bias1},
       "'dense/bias'",
       "has shape (1, 8), but the model's is (8)"},
      {{kernel, bias, tensor("dense_1/kernel", {8, 3}, ls::DType::int32), bias1},
       "'dense_1/kernel'",
       "is I32, but weights are F16, BF16, F32 or F64"},
  };
  auto m = classifier();
  const std::string before = m.weights_sha256();
  for (const auto& c : cases) {
    ls::write_safetensors(folder / "w.safetensors", c.tensors);
    const std::string text =
        message<ls::WeightsError>([&] { m.load_weights(folder / "w.safetensors"); });
    INFO(text);
    CHECK(contains(text, c.tensor));
    CHECK(contains(text, c.fact));
    CHECK(contains(text, "w.safetensors"));
    CHECK(m.weights_sha256() == before);
  }
  std::ofstream(folder / "w.safetensors", std::ios::trunc) << "not weights";
  CHECK(contains(message<ls::WeightsError>([&] { m.load_weights(folder / "w.safetensors"); }),
                 "w.safetensors"));
  CHECK(contains(message<ls::FileError>([&] { m.load_weights(folder / "none.safetensors"); }),
                 "none.safetensors"));
  CHECK(m.weights_sha256() == before);
}

TEST_CASE("weights of 16 and 64 bits are converted, exactly or rounded to nearest") {
  const Folder folder;
  const std::vector<ls::ParameterInfo> kernel{classifier().parameters()[0]};  // (2, 8)
  const auto load = [&]<class T, class Bits>(T, ls::DType type, std::vector<Bits> bits) {
    const std::vector<Bits> row = bits;
    bits.insert(bits.end(), row.begin(), row.end());
    ls::write_safetensors(folder / "w.safetensors",
                          {{"dense/kernel", type, {2, 8}, std::as_bytes(std::span(bits))}});
    std::vector<T> all(16), part(16), none;
    ls::detail::read_weights(folder / "w.safetensors", kernel,
                             ls::detail::writable_bytes_of(all, none));
    ls::detail::read_weights(folder / "w.safetensors", kernel,
                             ls::detail::writable_bytes_of(part, none), {.only = "dense/*"});
    CHECK(std::memcmp(all.data(), part.data(), 16 * sizeof(T)) == 0);
    CHECK(std::memcmp(all.data(), all.data() + 8, 8 * sizeof(T)) == 0);
    all.resize(8);
    return all;
  };
  const auto check = [](const auto& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == 8);
    for (std::size_t i = 0; i < 7; ++i) {
      CAPTURE(i);
      CHECK(static_cast<double>(found[i]) == expected[i]);
      CHECK(std::signbit(found[i]) == std::signbit(expected[i]));
    }
    CHECK(std::isnan(found[7]));
  };
  constexpr double infinite = std::numeric_limits<double>::infinity();
  // IEEE 754 binary16, bfloat16.
  const std::vector<std::uint16_t> half{0x3C00, 0xC000, 0x3555, 0x0001,
                                        0x7BFF, 0x8000, 0xFC00, 0x7E00},
      brain{0x3F80, 0xC000, 0x3EAB, 0x0001, 0x7F7F, 0x8000, 0xFF80, 0x7FC0};
  const std::vector<double> halves{1, -2, 0.333251953125, 0x1p-24, 65504, -0.0, -infinite},
      brains{1, -2, 0.333984375, 0x1p-133, 0x1.FEp127, -0.0, -infinite};
  check(load(float{}, ls::DType::float16, half), halves);
  check(load(double{}, ls::DType::float16, half), halves);
  check(load(float{}, ls::DType::bfloat16, brain), brains);
  check(load(double{}, ls::DType::bfloat16, brain), brains);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<float> single{1, 0.1f, 0x1p-149f, -0.0f, 3, 4, -5, static_cast<float>(nan)};
  check(load(double{}, ls::DType::float32, single), {1, 0x1.99999ap-4, 0x1p-149, -0.0, 3, 4, -5});
  // To the nearest float, ties to even: 1 + 2^-24 and 1 + 3 * 2^-24.
  std::vector<double> wide{0.1, 1 + 0x1p-24, 1 + 0x1.8p-23, 0x1p-150, -0.0, -infinite, 1e38, nan};
  check(load(float{}, ls::DType::float64, wide),
        {0x1.99999ap-4, 1, 1 + 0x1p-22, 0, -0.0, -infinite, 0x1.2ced32p126});
  wide[2] = 1e300;
  CHECK(
      contains(message<ls::WeightsError>([&] { load(float{}, ls::DType::float64, wide); }),
               "tensor 'dense/kernel' has the value 1e+300, which is beyond the range of float32"));
}

TEST_CASE("files of other programs are named, with what to do") {
  const Folder folder;
  auto m = classifier();
  const auto text = [&](const std::string& begin) {
    std::ofstream(folder / "w", std::ios::binary) << begin << std::string(100, '\x01');
    return message<ls::WeightsError>([&] { m.load_weights(folder / "w"); });
  };
  CHECK(contains(text("\x89HDF\r\n\x1a\n"),
                 "it is an HDF5 file, as Keras writes for .h5; write "
                 "safetensors with tools/exchange/keras_model.py save"));
  CHECK(contains(text("PK\x03\x04"), "it is a zip archive, such as a .keras file"));
  CHECK(contains(text("\x80\x02}q"), "it is a pickle of Python"));
  CHECK(contains(text("\x93NUMPY\x01"), "it is a file of NumPy"));
}

TEST_CASE("weights that cannot be written leave no temporary file") {
  const Folder folder;
  auto m = classifier();
  const std::string path = folder / "missing/w.safetensors";
  CHECK(contains(message<ls::FileError>([&] { m.save_weights(path); }), "missing"));
  CHECK(folder.files() == 0);
}

#include "lockstep/training/export/load_options.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/files/safetensors.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "support/temporary_folder.hpp"

namespace {

namespace ls = lockstep;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Names = std::vector<std::string>;

template <int Units>
struct Net : ls::Sequential<ls::Input<3>, ls::Dense<4, ls::relu>, ls::BatchNormalization<>,
                            ls::Dense<Units>> {};
template <int Units>
auto model(std::uint64_t seed) {
  return ls::Model{Net<Units>{}, ls::Seed{seed}, ls::OneDevice<ls::Reference<float>>{},
                   ls::MeanSquaredError{}, ls::SGD{}};
}
const Names normalization{"batch_normalization/gamma", "batch_normalization/beta",
                          "batch_normalization/moving_mean", "batch_normalization/moving_variance"};

/// The names in the order of the model.
Names names_of(const auto& m) {
  Names names;
  for (const ls::ParameterInfo& p : m.parameters()) names.push_back(p.name);
  return names;
}
Names joined(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Backbone : ls::Dense<4> {
  static constexpr std::string_view name = "backbone/dense";
};
struct WithHead : ls::Sequential<ls::Input<4>, Backbone, ls::Dense<4>> {};

struct Inner : ls::Residual<ls::Dense<4, ls::relu>> {
  static constexpr std::string_view name = "inner";
};
// An autoencoder of two named blocks, each of which is a model too.
struct Encoder
    : ls::Sequential<ls::Input<6>, ls::Dense<5, ls::relu>, ls::BatchNormalization<>, ls::Dense<3>> {
  static constexpr std::string_view name = "encoder";
};
struct Tail : ls::Sequential<ls::Dense<5, ls::tanh>, ls::Dense<6>> {
  static constexpr std::string_view name = "tail";
};
struct Decoder : ls::Sequential<ls::Input<3>, ls::Dense<4>, ls::Repeat<2, ls::Recompute<Inner>>,
                                ls::Dropout<0.25>, Tail> {
  static constexpr std::string_view name = "decoder";
};
struct Autoencoder : ls::Sequential<ls::Input<6>, Encoder, Decoder> {};
template <class N>
auto part(N net, std::uint64_t seed) {
  return ls::Model{net, ls::Seed{seed}, ls::OneDevice<ls::Reference<float>>{},
                   ls::MeanSquaredError{}, ls::SGD{}};
}
struct Block : ls::Sequential<ls::Dense<4>> {
  static constexpr std::string_view name = "block";
};
std::vector<float> outputs(auto& m, const std::vector<float>& x) {
  const auto y = m.predict(x);
  return {y.elements().begin(), y.elements().end()};
}
std::vector<float> waves(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = std::sin(static_cast<float>(i * i));
  return x;
}

/// Writes one vector per name.
void write(const std::string& path, const Names& names, std::uint64_t size) {
  const std::vector<float> values(size, 0.5f);
  std::vector<ls::SafetensorsEntry> tensors;
  for (const std::string& name : names)
    tensors.push_back({name, ls::DType::float32, {size}, std::as_bytes(std::span(values))});
  ls::write_safetensors(path, tensors);
}

}  // namespace

TEST_CASE("patterns match whole names, also across slashes") {
  const auto matches = [](const char* pattern, const char* name) {
    return ls::NamePatterns(pattern).match(name);
  };
  CHECK(matches("conv2d/kernel", "conv2d/kernel"));
  CHECK(!matches("conv2d", "conv2d/kernel"));
  CHECK(!matches("kernel", "conv2d/kernel"));
  CHECK(matches("conv2d*", "conv2d_1/kernel"));
  CHECK(matches("backbone/*", "backbone/block/conv2d/kernel"));
  CHECK(!matches("backbone/*", "backbone"));
  CHECK(matches("*/bias", "a/b/bias"));
  CHECK(matches("*a*b*", "xaxxbx"));
  CHECK(!matches("*a*b*", "xbxxax"));
  CHECK(matches("dense_?/kernel", "dense_1/kernel"));
  CHECK(!matches("dense_?/kernel", "dense_12/kernel"));
  CHECK(matches("*", ""));
  CHECK(matches("**", "anything"));
  CHECK(!matches("", "x"));
  CHECK(matches("a*ab", "aaaab"));  // the star must take more than the first fit
  CHECK(!ls::NamePatterns{}.match("x"));
  CHECK(ls::NamePatterns{"a", "b*"}.match("bc"));
}

TEST_CASE("load_weights with options loads the selected parameters and leaves the others") {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  const auto source = model<5>(1);
  source.save_weights(path);
  auto target = model<5>(2);
  const auto before = target.weights("dense_1/kernel");
  const ls::LoadReport report = target.load_weights(path, {.only = {"dense/*", "*moving_mean"}});
  CHECK(report.loaded == Names{"dense/kernel", "dense/bias", "batch_normalization/moving_mean"});
  CHECK(report.missing.empty());
  CHECK(report.skipped.size() == 5);
  CHECK(report.unused.size() == 5);
  CHECK(target.weights("dense/kernel") == source.weights("dense/kernel"));
  CHECK(target.weights("dense_1/kernel") == before);

  auto skipping = model<5>(2);
  const auto skipped = skipping.load_weights(path, {.skip = "dense_1/*"});
  CHECK(skipped.loaded == joined({"dense/kernel", "dense/bias"}, normalization));
  CHECK(skipped.skipped == Names{"dense_1/kernel", "dense_1/bias"});
  CHECK(skipped.unused.size() == 2);
  CHECK(skipping.weights("dense_1/kernel") == before);

  auto all = model<5>(2);
  const auto everything = all.load_weights(path, {.only = "*"});
  CHECK(everything.loaded == names_of(all));
  CHECK(everything.unused.empty());
  CHECK(all.weights_sha256() == source.weights_sha256());
}

TEST_CASE("a report names what the file lacks and what it has in excess") {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  write(path, {"dense/bias", "other/bias"}, 4);
  auto target = model<5>(1);
  const auto report = target.load_weights(path, {.only = "dense/*"});
  CHECK(report.loaded == Names{"dense/bias"});
  CHECK(report.missing == Names{"dense/kernel"});
  CHECK(report.unused == Names{"other/bias"});
  CHECK(target.weights("dense/bias") == std::vector<float>(4, 0.5f));
  std::ostringstream text;
  text << report;
  CHECK(text.str() ==
        "loaded 1: dense/bias\n"
        "missing in the file 1: dense/kernel\n"
        "not selected 6: batch_normalization/gamma, batch_normalization/beta, "
        "batch_normalization/moving_mean, batch_normalization/moving_variance, dense_1/kernel, "
        "dense_1/bias\n"
        "unused in the file 1: other/bias\n");
  CHECK(to_string(ls::LoadReport{}) == "loaded 0\n");
  ls::LoadReport hostile;
  hostile.unused = {"\x1b[2J\n"};
  CHECK(to_string(hostile) == "loaded 0\nunused in the file 1: \\x1b[2J\\x0a\n");
}

TEST_CASE("prefix and strip map the model's names to those of the file") {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  write(path, {"backbone/dense/bias", "bias"}, 4);
  auto target = model<5>(1);
  CHECK(target.load_weights(path, {.only = "dense/bias", .prefix = "backbone/"}).unused ==
        Names{"bias"});
  CHECK(target.load_weights(path, {.only = "dense/bias", .strip = "dense/"}).unused ==
        Names{"backbone/dense/bias"});
  CHECK(target.load_weights(path, {.only = "dense/bias", .strip = "de", .prefix = "backbone/de"})
            .loaded == Names{"dense/bias"});
}

TEST_CASE("strip applies to names that begin with it, and gives no tensor to two parameters") {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  write(path, {"dense/bias"}, 4);
  ls::Model target{WithHead{}, ls::OneDevice<ls::Reference<float>>{}, ls::MeanSquaredError{},
                   ls::SGD{}};
  const std::string before = target.weights_sha256();
  // The head is called dense as well, but is not what the file has.
  CHECK_THROWS_MATCHES(
      target.load_weights(path, {.strip = "backbone/"}), ls::UsageError,
      MessageMatches(ContainsSubstring("'backbone/dense/bias' and 'dense/bias' have the same "
                                       "tensor 'dense/bias' in the file; set .only")));
  CHECK_THROWS_MATCHES(
      target.load_weights(path, {.strip = "back_bone/"}), ls::UsageError,
      MessageMatches(ContainsSubstring(".strip is 'back_bone/', but no parameter of the model")));
  CHECK(target.weights_sha256() == before);
  const auto report = target.load_weights(path, {.only = "backbone/*", .strip = "backbone/"});
  CHECK(report.loaded == Names{"backbone/dense/bias"});
  CHECK(report.missing == Names{"backbone/dense/kernel"});
  CHECK(report.skipped == Names{"dense/kernel", "dense/bias"});
  CHECK(target.weights("backbone/dense/bias") == std::vector<float>(4, 0.5f));
  CHECK(target.weights("dense/bias") == std::vector<float>(4, 0.0f));
}

TEST_CASE("what cannot be loaded is an error with its name, and changes nothing") {
  const TemporaryFolder folder;
  const std::string path = folder / "w.safetensors";
  model<5>(1).save_weights(path);
  auto target = model<6>(2);
  const std::string before = target.weights_sha256();
  const auto load = [&](const ls::LoadOptions& options) { target.load_weights(path, options); };
  CHECK_THROWS_MATCHES(
      load({.only = {"dense/*", "dense_1/*"}}), ls::WeightsError,
      MessageMatches(ContainsSubstring("tensor 'dense_1/kernel' has shape (4, 5), but the model's "
                                       "is (4, 6)")));
  CHECK_THROWS_MATCHES(
      load({.only = "backbone/*"}), ls::UsageError,
      MessageMatches(ContainsSubstring(".only has 'backbone/*', which matches no parameter of the "
                                       "model; its parameters are dense/kernel, dense/bias, ")));
  CHECK_THROWS_MATCHES(load({.skip = "x"}), ls::UsageError,
                       MessageMatches(ContainsSubstring(".skip has 'x'")));
  CHECK_THROWS_MATCHES(
      load({.only = {"dense/*", "*gamma"}, .strip = "dense/"}), ls::WeightsError,
      MessageMatches(ContainsSubstring("for the parameters that 'dense/*' selects; it has 8 "
                                       "tensors, the first is 'batch_normalization/beta'")));
  CHECK_THROWS_MATCHES(load({.prefix = "x/"}), ls::WeightsError,
                       MessageMatches(ContainsSubstring("for the 8 selected parameters")));
  CHECK_THROWS_AS(target.load_weights(folder / "none.safetensors", {.only = "*"}), ls::FileError);
  const std::vector<std::int32_t> whole(4);
  ls::write_safetensors(folder / "i32.safetensors",
                        {{"dense/bias", ls::DType::int32, {4}, std::as_bytes(std::span(whole))}});
  CHECK_THROWS_MATCHES(target.load_weights(folder / "i32.safetensors", {.only = "dense/*"}),
                       ls::WeightsError, MessageMatches(ContainsSubstring("dense/bias")));
  CHECK(target.weights_sha256() == before);
}

TEST_CASE("the blocks of a trained autoencoder compute the same as models of their own") {
  const TemporaryFolder folder;
  const std::string path = folder / "vae.safetensors";
  const std::vector<float> x = waves(48 * 6);
  auto whole = part(Autoencoder{}, 1);
  whole.fit(ls::tensors(x, ls::shape(6), x, ls::shape(6)) | ls::batch(16),
            {.epochs = 3, .progress = ls::ProgressStyle::none});
  whole.save_weights(path);

  auto encoder = part(Encoder{}, 2);
  auto decoder = part(Decoder{}, 3);
  const auto of_encoder = encoder.load_weights(path, {.prefix = "encoder/"});
  const auto of_decoder = decoder.load_weights(path, {.prefix = "decoder/"});
  CHECK(of_encoder.loaded == names_of(encoder));
  CHECK(of_decoder.loaded == names_of(decoder));
  CHECK(of_decoder.loaded == Names{"dense/kernel", "dense/bias", "inner/dense/kernel",
                                   "inner/dense/bias", "inner_1/dense/kernel", "inner_1/dense/bias",
                                   "tail/dense/kernel", "tail/dense/bias", "tail/dense_1/kernel",
                                   "tail/dense_1/bias"});
  CHECK(of_decoder.unused.size() == names_of(encoder).size());
  for (const std::string& name : of_decoder.unused) CHECK(name.starts_with("encoder/"));
  const std::vector<float> codes = outputs(encoder, x);
  CHECK(outputs(decoder, codes) == outputs(whole, x));

  // And back into another autoencoder, block by block.
  encoder.save_weights(folder / "encoder.safetensors");
  decoder.save_weights(folder / "decoder.safetensors");
  auto again = part(Autoencoder{}, 4);
  const std::string first = again.weights_sha256();
  const auto back = again.load_weights(folder / "encoder.safetensors", {.strip = "encoder/"});
  CHECK(back.loaded.size() == names_of(encoder).size());
  CHECK(back.missing.size() == names_of(decoder).size());
  CHECK(back.unused.empty());
  CHECK(outputs(again, x) != outputs(whole, x));
  const auto rest = again.load_weights(folder / "decoder.safetensors",
                                       {.only = "decoder/*", .strip = "decoder/"});
  CHECK(rest.skipped == back.loaded);
  CHECK(again.weights_sha256() == whole.weights_sha256());
  CHECK(outputs(again, x) == outputs(whole, x));
  CHECK(first != again.weights_sha256());

  // A part of a block, whose names have two beginnings in the file.
  struct TailAlone : ls::Sequential<ls::Input<4>, Tail> {};
  auto tail = part(TailAlone{}, 5);
  CHECK(tail.load_weights(path, {.prefix = "decoder/"}).loaded == names_of(tail));
  CHECK(tail.load_weights(path, {.strip = "tail/", .prefix = "decoder/tail/"}).loaded ==
        names_of(tail));
  CHECK(tail.weights("tail/dense/kernel") == whole.weights("decoder/tail/dense/kernel"));
}

TEST_CASE("a wrong beginning is an error with those that exist") {
  const TemporaryFolder folder;
  const std::string path = folder / "vae.safetensors";
  auto whole = part(Autoencoder{}, 1);
  auto decoder = part(Decoder{}, 3);
  whole.save_weights(path);
  decoder.save_weights(folder / "decoder.safetensors");
  const std::string before = decoder.weights_sha256();
  const std::string beginnings =
      "; the beginnings of its names are 'decoder/', 'decoder/inner/', 'decoder/inner_1/', "
      "'decoder/tail/', 'encoder/'";
  CHECK_THROWS_MATCHES(decoder.load_weights(path, {.prefix = "Decoder/"}), ls::WeightsError,
                       MessageMatches(ContainsSubstring("has no tensor for the 10 selected "
                                                        "parameters of the model" +
                                                        beginnings)));
  CHECK_THROWS_MATCHES(decoder.load_weights(path, {.only = "tail/*"}), ls::WeightsError,
                       MessageMatches(ContainsSubstring("for the parameters that 'tail/*' selects; "
                                                        "it has 18 tensors, the first is "
                                                        "'decoder/dense/bias'" +
                                                        beginnings)));
  CHECK_THROWS_MATCHES(
      whole.load_weights(folder / "decoder.safetensors", {.strip = "tail/"}), ls::UsageError,
      MessageMatches(ContainsSubstring(".strip is 'tail/', but no parameter of the model begins "
                                       "with it" +
                                       beginnings)));
  // Without options the remedy is an option.
  CHECK_THROWS_MATCHES(decoder.load_weights(path), ls::WeightsError,
                       MessageMatches(ContainsSubstring(
                           "tensor 'decoder/dense/bias' is not in the model; load a part of the "
                           "file with .prefix = 'decoder/'")));
  CHECK_THROWS_MATCHES(whole.load_weights(folder / "decoder.safetensors"), ls::WeightsError,
                       MessageMatches(ContainsSubstring(
                           "tensor 'dense/bias' is not in the model; load a part of the model with "
                           ".strip = 'decoder/'")));
  write(folder / "two.safetensors", {"dense/bias"}, 4);
  struct Two : ls::Sequential<ls::Input<4>, Block, Block> {};
  CHECK_THROWS_MATCHES(part(Two{}, 1).load_weights(folder / "two.safetensors"), ls::WeightsError,
                       MessageMatches(ContainsSubstring(".strip = 'block/' or 'block_1/'")));
  CHECK(decoder.weights_sha256() == before);

  // At most eight, without characters that control a terminal.
  Names names;
  for (int i = 0; i < 9; ++i) names.push_back("b" + std::to_string(i) + "\x1b/dense/bias");
  write(folder / "many.safetensors", names, 4);
  CHECK_THROWS_MATCHES(
      decoder.load_weights(folder / "many.safetensors", {.prefix = "x/"}), ls::WeightsError,
      MessageMatches(ContainsSubstring("'b0\\x1b/', ") && ContainsSubstring("'b7\\x1b/', ...; ")));
}

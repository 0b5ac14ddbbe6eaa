#include "lockstep/training/checks/model_signature.hpp"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/core/numbers/digest64.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "lockstep/trace.hpp"

namespace {

namespace ls = lockstep;
using ls::detail::describe_layers;

template <class... Layers>
struct Net : ls::Sequential<ls::Input<8, 8, 2>, Layers...> {};

template <class... Layers>
std::string text_of() {
  return describe_layers<Net<Layers...>>();
}

/// A custom op whose first member is a shape other than the input's.
struct CropOp {
  ls::Shape to;
  bool centre = false;
  std::array<int, 2> offset{};
  constexpr ls::Shape out() const { return to; }
  bool operator==(const CropOp&) const = default;
};
template <int Size, bool Centre, int Offset>
struct Crop {
  static constexpr std::string_view name = "crop";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 0> parameters(ls::Shape) { return {}; }
  static constexpr CropOp op(ls::Shape in) {
    return {ls::shape(Size, Size, in[2]), Centre, {Offset, 0}};
  }
};

/// Ops whose members cannot be visited: a C array, a base class, private members.
struct ArrayOp {
  int table[3] = {1, 2, 3};
  constexpr ls::Shape out() const { return ls::shape(1); }
};
struct WithBase : ls::detail::AnyMember<int> {
  int value = 1;
};
class Closed {
 public:
  explicit constexpr Closed(int n) : n_(n) {}
  constexpr int n() const { return n_; }

 private:
  int n_;
};
static_assert(!ls::detail::is_plain<ArrayOp>());
static_assert(!ls::detail::is_plain<WithBase>());
static_assert(!ls::detail::is_plain<Closed>());
static_assert(ls::detail::is_plain<CropOp>() && ls::detail::is_plain<ls::Conv2DOp>());
static_assert(ls::detail::member_count<ls::Conv2DOp>() == 8);
static_assert(ls::detail::member_count<ls::detail::RecurrentLayer>() == 12);
static_assert(ls::detail::is_plain<ls::detail::RecurrentLayer>());

const ls::SparseCategoricalCrossentropy loss{.from_logits = true};

template <class N>
ls::Signature signature(std::uint64_t seed = 1) {
  using D = ls::Reference<float>;
  std::vector<float> weights(N::graph.weights), state(N::graph.state);
  ls::detail::initialize_parameters<N, float>(seed, weights, state);
  ls::Signature fields =
      ls::detail::model_signature<N, D>(seed, 0, loss, ls::SGD{}, std::tuple(ls::Accuracy{}));
  fields.emplace_back("initial values",
                      ls::detail::describe_values(ls::detail::named_parameters<N>(),
                                                  ls::detail::bytes_of(weights, state)));
  return fields;
}

/// The names of the fields in which two signatures differ.
std::vector<std::string> differing(const ls::Signature& a, const ls::Signature& b) {
  REQUIRE(a.size() == b.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].first == b[i].first);
    if (a[i].second != b[i].second) names.push_back(a[i].first);
  }
  return names;
}

template <auto... Options>
struct Tail : ls::Sequential<ls::Input<4>, ls::Dense<3, Options...>> {};

template <int Which>
struct Part : ls::Sequential<ls::Dense<3>, ls::Dense<3>> {
  static constexpr std::string_view name = Which == 0 ? "part" : "other";
};

}  // namespace

TEST_CASE("models that differ in the name of a block only have different signatures") {
  struct Blocks : ls::Sequential<ls::Input<4>, Part<0>, ls::Dense<3>> {};
  struct Others : ls::Sequential<ls::Input<4>, Part<1>, ls::Dense<3>> {};
  struct Plain : ls::Sequential<ls::Input<4>, ls::Dense<3>, ls::Dense<3>, ls::Dense<3>> {};
  CHECK(ls::detail::describe_layers<Blocks>().starts_with("part/dense (inputs 4, "));
  CHECK(ls::detail::describe_layers<Blocks>().find("; part/dense_1 (inputs 3, ") !=
        std::string::npos);
  const std::vector<std::string> fields{"layers", "initial values"};
  CHECK(differing(signature<Blocks>(), signature<Blocks>()).empty());
  CHECK(differing(signature<Blocks>(), signature<Others>()) == fields);
  CHECK(differing(signature<Blocks>(), signature<Plain>()) == fields);
  CHECK(ls::detail::hash_of_layers<Blocks>() != ls::detail::hash_of_layers<Others>());
}

TEST_CASE("a signature describes each layer's name, options, output shape and parameters") {
  CHECK(
      text_of<ls::Conv2D<4, ls::kernel(3, 2), ls::same, ls::strides(2, 1),
                         ls::kernel_regularizer(ls::L2{2e-4})>,
              ls::ReLU, ls::MaxPooling2D<2>, ls::BatchNormalization<ls::center(false)>, ls::Flatten,
              ls::Dropout<ls::rate(0.25f)>, ls::Dense<3, ls::no_bias>, ls::LeakyReLU<>>() ==
      "conv2d (filters 4, kernel_size (3, 2), strides (2, 1), dilation_rate (1, 1), padding same, use_bias yes) to (4, 8, 4), kernel (3, 2, 2, 4) l2 2e-04, bias (4); re_lu to (4, 8, 4); max_pooling2d (window (pool_size (2, 2), strides (2, 2), padding valid)) to (2, 4, 4); batch_normalization (momentum 0.99, epsilon 0.001, center no, scale yes, synchronized no) to (2, 4, 4), gamma (4), moving_mean (4) not trained, moving_variance (4) not trained; flatten (target_shape (32)) to (32); dropout (rate 0.25) to (32); dense (inputs 32, units 3, use_bias no, leading ()) to (3), kernel (32, 3); leaky_re_lu (negative_slope 0.3) to (3)");
}

TEST_CASE("models that differ in one layer or option only have different signatures") {
  using C = ls::Conv2D<2, 3, ls::same>;
  const std::vector<std::string> all{
      text_of<C, ls::ReLU>(),
      text_of<C, ls::Tanh>(),
      text_of<C, ls::Sigmoid>(),
      text_of<C, ls::LeakyReLU<>>(),
      text_of<C, ls::LeakyReLU<ls::negative_slope(0.2f)>>(),
      text_of<C, ls::Dropout<ls::rate(0.2f)>>(),
      text_of<C, ls::Dropout<ls::rate(0.5f)>>(),
      text_of<C, ls::RandomFlip<>>(),
      text_of<C, ls::RandomFlip<ls::vertical>>(),
      text_of<C, ls::RandomCutout<2>>(),
      text_of<C, ls::RandomCutout<2, ls::fill_constant(1)>>(),
      text_of<C, ls::RandomRotation<ls::factor(0.1)>>(),
      text_of<C, ls::RandomRotation<ls::factor(0, 0.1)>>(),
      text_of<C, ls::RandomRotation<ls::factor(0.1), ls::fill_wrap>>(),
      text_of<C, ls::RandomRotation<ls::factor(0.1), ls::nearest>>(),
      text_of<C, ls::MaxPooling2D<2>>(),
      text_of<C, ls::AveragePooling2D<2>>(),
      text_of<C, ls::MaxPooling2D<3, ls::strides(2), ls::same>>(),
      text_of<C, ls::MaxPooling2D<2, ls::strides(2), ls::same>>(),
      text_of<C, ls::MaxPooling2D<2, ls::strides(1), ls::same>>(),
      text_of<ls::Conv2D<2, 3, ls::same, ls::dilation(2)>>(),
      text_of<ls::Conv2D<2, 3, ls::same, ls::strides(2)>>(),
      text_of<ls::Conv2D<2, 3, ls::strides(2)>>(),
      text_of<ls::Conv2D<2, 3, ls::same, ls::kernel_regularizer(ls::L2{0.01})>>(),
      text_of<ls::Conv2D<2, 3, ls::same, ls::kernel_regularizer(ls::L2{0.02})>>(),
      text_of<ls::Conv2D<2, 3, ls::same, ls::kernel_regularizer(ls::L1{0.01})>>(),
      text_of<ls::Conv2D<2, 3, ls::same, ls::bias_regularizer(ls::L2{0.01})>>(),
      text_of<C, ls::BatchNormalization<>>(),
      text_of<C, ls::BatchNormalization<ls::momentum(0.9f)>>(),
      text_of<C, ls::BatchNormalization<ls::epsilon(1e-5f)>>(),
      text_of<C, ls::BatchNormalization<ls::synchronized>>(),
      text_of<C, Crop<2, false, 0>>(),
      text_of<C, Crop<2, true, 0>>(),
      text_of<C, Crop<2, false, 1>>(),
      text_of<Crop<2, true, 0>>(),
      // The same layers, connected differently.
      text_of<ls::Residual<ls::Sequential<C, ls::ReLU>>>(),
      text_of<ls::Residual<C, ls::ReLU>>(),
      text_of<C, ls::Residual<ls::ReLU>>(),
  };
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());
}

TEST_CASE("an initializer, which is not a member of the op, is distinguished by its values") {
  const auto names = [](const auto& a, const auto& b) { return differing(a, b); };
  const std::vector<std::string> initial{"initial values"};
  CHECK(names(signature<Tail<>>(), signature<Tail<>>()).empty());
  CHECK(names(signature<Tail<>>(), signature<Tail<ls::he_normal>>()) == initial);
  CHECK(names(signature<Tail<>>(), signature<Tail<ls::bias_initializer(ls::ones)>>()) == initial);
  CHECK(names(signature<Tail<ls::glorot_normal>>(), signature<Tail<ls::lecun_normal>>()) ==
        initial);
  // The seed, which determines the values, is named before them.
  CHECK(names(signature<Tail<>>(1), signature<Tail<>>(2)).front() == "seed");
}

TEST_CASE("losses that differ in one option only have different signatures") {
  using ls::detail::describe_loss;
  using Binary = ls::BinaryCrossentropy;
  using Categorical = ls::CategoricalCrossentropy;
  const std::vector<std::string> all{
      describe_loss(ls::MeanSquaredError{}),
      describe_loss(ls::MeanAbsoluteError{}),
      describe_loss(ls::Huber{}),
      describe_loss(ls::Huber{.delta = 2}),
      describe_loss(Binary{}),
      describe_loss(Binary{.from_logits = true}),
      describe_loss(Binary{.label_smoothing = 0.1}),
      describe_loss(Categorical{}),
      describe_loss(Categorical{.from_logits = true}),
      describe_loss(Categorical{.label_smoothing = 0.1}),
      describe_loss(Categorical{.label_smoothing = 0.2}),
  };
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());
  CHECK(describe_loss(Categorical{.from_logits = true}) ==
        "categorical_crossentropy, from logits, label smoothing 0");
}

TEST_CASE("schedules with equal first rates have different signatures") {
  using ls::detail::describe_optimizer;
  const auto text_of = [](ls::Schedule rate) {
    return describe_optimizer(ls::SGD{.learning_rate = rate});
  };
  CHECK(text_of(0.1) == "sgd, rate 0.1, momentum 0, nesterov 0");
  CHECK(text_of(ls::ExponentialDecay{0.1, 10, 0.5}) ==
        "sgd, rate 0.1 by exponential_decay, initial_learning_rate 0.1, decay_steps 10, decay_rate "
        "0.5, staircase 0, momentum 0, nesterov 0");
  CHECK(text_of(ls::ExponentialDecay{0.1, 10, 0.5}) !=
        text_of(ls::ExponentialDecay{0.1, 10, 0.25}));
  CHECK(text_of([](std::uint64_t) { return 0.1; }) != text_of(0.1));
}

TEST_CASE("optimizers that differ in one number or option only have different signatures") {
  using ls::detail::describe_optimizer;
  const auto with = [](ls::UpdateOptions options) {
    return describe_optimizer(ls::Adam{.weight_decay = 0.1, .with = options});
  };
  const std::vector<std::string> all{
      describe_optimizer(ls::Adam{}),
      describe_optimizer(ls::AdamW{}),
      describe_optimizer(ls::AdamW{.weight_decay = 0.1}),
      describe_optimizer(ls::Adamax{}),
      describe_optimizer(ls::Nadam{}),
      describe_optimizer(ls::RMSprop{}),
      describe_optimizer(ls::RMSprop{.rho = 0.5}),
      describe_optimizer(ls::RMSprop{.momentum = 0.5}),
      describe_optimizer(ls::RMSprop{.centered = true}),
      describe_optimizer(ls::Adagrad{}),
      describe_optimizer(ls::Adagrad{.initial_accumulator_value = 1}),
      describe_optimizer(ls::Adadelta{}),
      describe_optimizer(ls::Adadelta{.rho = 0.5}),
      describe_optimizer(ls::Lion{}),
      describe_optimizer(ls::Lion{.beta_2 = 0.5}),
      describe_optimizer(ls::Lamb{}),
      describe_optimizer(ls::Lamb{.epsilon = 1e-6}),
      describe_optimizer(ls::Adafactor{}),
      describe_optimizer(ls::Adafactor{.clip_threshold = 2}),
      describe_optimizer(ls::Muon{}),
      describe_optimizer(ls::Muon{.exclude_layers = {"dense"}}),
      describe_optimizer(ls::Muon{.variant = ls::MuonVariant::jordan}),
      describe_optimizer(ls::Muon{.iteration = ls::NewtonSchulz{.steps = 6}}),
      describe_optimizer(ls::SGD{.learning_rate = ls::Warmup{.steps = 5, .then = 0.1}}),
      describe_optimizer(ls::SGD{.learning_rate = ls::Warmup{.steps = 5, .then = 0.2}}),
      describe_optimizer(ls::Ftrl{}),
      describe_optimizer(ls::Ftrl{.beta = 1}),
      with({}),
      with({.clipnorm = 1}),
      with({.clipnorm = 2}),
      with({.block_clipnorm = 1}),
      with({.global_clipnorm = 1}),
      with({.clipvalue = 1}),
      with({.exclude_from_weight_decay = {"bias"}}),
      with({.exclude_from_weight_decay = {"bias", "gamma"}}),
      with({.use_ema = true}),
      with({.use_ema = true, .ema_momentum = 0.9}),
      with({.use_ema = true, .ema_overwrite_frequency = 3}),
      with({.gradient_accumulation_steps = 2}),
      with({.gradient_accumulation_steps = 3}),
  };
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());
  CHECK(describe_optimizer(ls::SGD{.weight_decay = 1e-4, .with = {.clipnorm = 1}}) ==
        "sgd, rate 0.01, momentum 0, nesterov 0, weight_decay 1e-04, clipnorm 1");
}

TEST_CASE("metrics that differ in one option only have different signatures") {
  using ls::detail::describe_metric;
  const std::vector<std::string> all{
      describe_metric(ls::Accuracy{}),
      describe_metric(ls::BinaryAccuracy{}),
      describe_metric(ls::BinaryAccuracy{.threshold = 0}),
      describe_metric(ls::Precision{}),
      describe_metric(ls::Precision{.threshold = 0}),
      describe_metric(ls::Recall{}),
      describe_metric(ls::Recall{.threshold = 0}),
      describe_metric(ls::TopKCategoricalAccuracy{}),
      describe_metric(ls::TopKCategoricalAccuracy{.k = 2}),
      describe_metric(ls::AUC<>{}),
      describe_metric(ls::AUC<100>{}),
      describe_metric(ls::AUC<>{.curve = ls::Curve::pr}),
      describe_metric(ls::AUC<>{.from_logits = true}),
      describe_metric(ls::MeanOf<ls::Huber>{}),
      describe_metric(ls::MeanOf<ls::Huber>{{.delta = 2}}),
      describe_metric(ls::MeanOf<ls::BinaryCrossentropy>{{.from_logits = true}}),
      describe_metric(ls::RootMeanSquaredError{}),
      describe_metric(ls::Weighted<ls::Accuracy>{}),
      describe_metric(ls::Weighted<ls::Precision>{}),
      describe_metric(ls::Weighted<ls::Precision>{{.threshold = 0}}),
      describe_metric(ls::Weighted<ls::MeanOf<ls::Huber>>{{{.delta = 2}}}),
  };
  CHECK(std::set<std::string>(all.begin(), all.end()).size() == all.size());
}

namespace {

/// Losses, a metric and an optimizer of a program, without numbers().
struct Quantile {
  static constexpr std::string_view name = "quantile";
  double q = 0.5;
  bool is_strict = false;
};
struct WithoutMembers {
  static constexpr std::string_view name = "without";
};
struct Optional {
  static constexpr std::string_view name = "optional";
  double q = 0.5;
  std::optional<double> other{};
};
struct Function {
  static constexpr std::string_view name = "function";
  std::function<double()> f{};
  double q = 0.5;
};
struct Named {
  static constexpr std::string_view name = "named";
  std::optional<double> q{};
  std::array<std::pair<std::string_view, double>, 1> numbers() const {
    return {{{"quantile", q.value_or(0)}}};
  }
};
struct SlowStep {
  double factor;
};
struct Slow {
  static constexpr std::string_view name = "slow";
  ls::Schedule learning_rate = 0.1;
  double factor = 0.5;
  SlowStep op(double rate, std::uint64_t) const { return {rate * factor}; }
};

}  // namespace

TEST_CASE("options of custom losses, metrics and optimizers are part of the signature") {
  using ls::detail::describe_loss, ls::detail::describe_metric, ls::detail::describe_optimizer;
  CHECK(describe_loss(Quantile{.q = 0.9}) == "quantile, options (0.9, no)");
  CHECK(describe_loss(Quantile{.is_strict = true}) == "quantile, options (0.5, yes)");
  CHECK(describe_metric(Quantile{.q = 0.9}) == "quantile, options (0.9, no)");
  CHECK(describe_loss(WithoutMembers{}) == "without");
  // Members of other types are not seen, nor those next to one that AnyMember cannot initialize.
  CHECK(describe_loss(Optional{.q = 0.9}) == "optional, options (0.9, )");
  CHECK(describe_loss(Function{.q = 0.9}) == "function");
  CHECK(describe_loss(Named{.q = 0.9}) == "named, quantile 0.9");
  CHECK(describe_optimizer(Slow{.factor = 0.25}).starts_with("slow, rate 0.1, options (0.25)"));
}

TEST_CASE("the descriptions of the library's losses and metrics have not changed") {
  using ls::detail::describe_loss, ls::detail::describe_metric;
  CHECK(describe_loss(loss) == "sparse_categorical_crossentropy, from logits");
  CHECK(describe_loss(ls::SparseCategoricalCrossentropy{.ignore_class = -1}) ==
        "sparse_categorical_crossentropy, from probabilities, ignored class -1");
  CHECK(describe_loss(ls::MeanSquaredError{}) == "mean_squared_error");
  CHECK(describe_loss(ls::Poisson{}) == "poisson");
  CHECK(describe_metric(ls::Accuracy{}) == "accuracy");
  CHECK(describe_metric(ls::Accuracy{.ignore_class = 255}) == "accuracy, ignored class 255");
  CHECK(describe_metric(ls::RootMeanSquaredError{}) == "root_mean_squared_error");
  CHECK(describe_metric(ls::ConfusionMatrix<3>{}) == "confusion_matrix");
}

TEST_CASE("signatures differ if one bit of one initial value differs") {
  std::vector<float> values(1000, 0.5f);
  values[3] = 0.25f;
  const auto sum_of = [&] { return ls::Digest64().add(std::as_bytes(std::span(values))).value(); };
  const auto sum = sum_of();
  for (const std::size_t i : {0u, 1u, 998u, 999u}) {
    const float before = std::exchange(values[i], 0.50000006f);
    CHECK(sum_of() != sum);
    values[i] = before;
  }
  std::swap(values[3], values[4]);
  CHECK(sum_of() != sum);
}

TEST_CASE("signatures distinguish builds that round differently, and only those") {
  using ls::detail::describe_arithmetic;
  CHECK(describe_arithmetic(false, false, "12") == describe_arithmetic(false, false, "13"));
  const std::set<std::string> all{
      describe_arithmetic(false, false, "12"), describe_arithmetic(false, true, "12"),
      describe_arithmetic(false, true, "13"), describe_arithmetic(true, false, "12"),
      describe_arithmetic(true, true, "12")};
  CHECK(all.size() == 5);
  const auto fields = signature<Tail<>>();
  const auto has_field = [&](const char* name, const std::string& value) {
    return std::any_of(fields.begin(), fields.end(), [&](const auto& field) {
      return field.first == name && field.second == value;
    });
  };
  CHECK(has_field("arithmetic", ls::detail::arithmetic_of_build()));
  CHECK(has_field("the library's arithmetic", ls::detail::arithmetic_of_library()));
}

TEST_CASE("signatures distinguish pipelines of equal sizes by the order of their examples") {
  const auto data =
      ls::tensors(std::vector<float>(100), ls::shape(1), std::vector<std::int32_t>(100));
  const auto text_of = [](const auto& pipeline) {
    const auto batched = pipeline | ls::batch(8);
    return ls::detail::fit_signature(ls::detail::described<float>(batched), {}, ls::FitOptions{}, 0,
                                     0, 0.1, false);
  };
  const auto first = text_of(data | ls::shard(2, 0));
  CHECK(first == text_of(data | ls::shard(2, 0)));
  CHECK(first != text_of(data | ls::shard(2, 1)));
  CHECK(first != text_of(data | ls::take(50)));
  CHECK(text_of(data | ls::shuffle(100)) == text_of(data | ls::shuffle(100)));
}

TEST_CASE("signatures name the size and the first examples of repeated data, next to a digest") {
  const auto text_of = [](std::size_t count, const auto& operation) {
    const auto data =
        ls::tensors(std::vector<float>(count), ls::shape(1), std::vector<std::int32_t>(count)) |
        operation | ls::batch(8) | ls::prefetch(2);
    return ls::detail::fit_signature(ls::detail::described<float>(data), {}, ls::FitOptions{}, 0, 0,
                                     0.1, false);
  };
  const auto endless = text_of(100, ls::repeat);
  CHECK(endless[0] == std::pair<std::string, std::string>("training examples", "100, repeated"));
  CHECK(endless[2].first == "order of the examples");
  CHECK(endless[2].second.starts_with("0, 1, 2, 3, ..., digest "));
  CHECK(text_of(64, ls::repeat)[0].second == "64, repeated");
  CHECK(text_of(64, ls::repeat(2))[0].second == "128");
  CHECK(text_of(64, ls::take(2))[2].second.starts_with("0, 1, digest "));
}

TEST_CASE("signatures include the traced steps, and not the name of the file") {
  const auto data =
      ls::tensors(std::vector<float>(6), ls::shape(1), std::vector<std::int32_t>(6)) | ls::batch(2);
  const auto text_of = [&](std::vector<std::shared_ptr<ls::Callback>> callbacks) {
    const ls::FitOptions options{.callbacks = std::move(callbacks)};
    const auto fields = ls::detail::fit_signature(ls::detail::described<float>(data), {}, options,
                                                  0, 0, 0.1, false);
    return std::find_if(fields.begin(), fields.end(),
                        [](const auto& field) { return field.first == "trace"; })
        ->second;
  };
  CHECK(text_of({}) == "none");
  CHECK(text_of({std::make_shared<ls::History>()}) == "none");
  CHECK(text_of({ls::Trace{}}) == "10 steps from the usual step");
  CHECK(text_of({ls::Trace{.filename = "other"}}) == "10 steps from the usual step");
  CHECK(text_of({std::make_shared<ls::History>(), ls::Trace{.first_step = 7, .steps = 3}}) ==
        "3 steps from step 7");
}

TEST_CASE("signatures include sample weights and class weights") {
  const auto data = ls::tensors(std::vector<float>(6), ls::shape(1), std::vector<std::int32_t>(6));
  const auto plain = data | ls::batch(2);
  const auto weighted = data | ls::sample_weights(std::vector<float>(6)) | ls::batch(2);
  const auto text_of = [](const auto& train, const auto& validation, ls::ClassWeights classes) {
    const ls::FitOptions options{.class_weight = std::move(classes)};
    std::optional<ls::detail::DescribedData> described;
    if constexpr (requires { validation.size(); })
      described = ls::detail::described<float>(validation);
    const auto fields = ls::detail::fit_signature(ls::detail::described<float>(train), described,
                                                  options, 0, 0, 0.1, false);
    const auto value = [&](std::string_view name) {
      return std::find_if(fields.begin(), fields.end(),
                          [&](const auto& field) { return field.first == name; })
          ->second;
    };
    return std::pair(value("weights"), value("validation"));
  };
  CHECK(text_of(plain, 0, {}).first == "none");
  CHECK(text_of(plain, 0, {{1, 0.5}, {0, 2}}).first == "class 0 2, class 1 0.5");
  CHECK(text_of(plain, 0, {{0, 2}, {1, 0.5}}).first == "class 0 2, class 1 0.5");
  CHECK(text_of(weighted, 0, {}).first == "one per example");
  CHECK(text_of(weighted, 0, {{3, 0.1}}).first == "one per example, class 3 0.1");
  CHECK(text_of(plain, plain, {}).second != text_of(plain, weighted, {}).second);
  using ls::detail::data_signature, ls::detail::described;
  CHECK(data_signature(described<float>(plain), {}) !=
        data_signature(described<float>(weighted), {}));
}

/// \file
/// Compares recurrent layers with Keras' outputs and gradients.
#pragma once

#include "golden/layers.hpp"

namespace golden {

/// `mask`: of all examples, if not empty.
template <class D, class L>
void meets_recurrent_layer(const GoldenFile& file, const std::string& name,
                           const std::vector<double>& mask = {}) {
  DYNAMIC_SECTION(name) {
    using T = typename D::real;
    const auto values = [&](const char* part) {
      return testing::as<T>(file.values(name + "/" + part));
    };
    const ls::Shape in = file.example_shape(name + "/x");
    REQUIRE(L::op(in).out() == file.example_shape(name + "/y"));
    const auto w = testing::as<T>(weights<L>(file, in, name + "/param/"));
    auto op = L::op(in);
    if (!mask.empty()) op.read_masks(1, 1);
    const auto run = testing::run_layer<D>(op, file.count(name + "/x"), values("x"), w, values("c"),
                                           {.pass = 3, .x2 = testing::as<T>(mask)});
    CHECK(testing::relative_error(run.y, values("y")) < tolerance<D>);
    CHECK(testing::relative_error(run.dx, values("dx")) < tolerance<D>);
    CHECK(testing::relative_error(run.dw, weights<L>(file, in, name + "/d/")) < tolerance<D>);
  }
}

/// A layer with initial states, or one that returns its states, or both; `mask` as above.
template <class D, class L>
void meets_recurrent_states(const GoldenFile& file, const std::string& name) {
  DYNAMIC_SECTION(name) {
    using T = typename D::real;
    const auto values = [&](const std::string& part) {
      return testing::as<T>(file.values(name + "/" + part));
    };
    const ls::Shape in = file.example_shape(name + "/x");
    auto op = L::op(in);
    testing::RunOptions<T> options{.pass = 3};
    const auto add = [&](const std::vector<T>& operand) {
      if (options.x2.empty())
        options.x2 = operand;
      else
        options.more.push_back(operand);
    };
    for (int k = 0; k < op.layer.operands - 1; ++k) add(values("initial/" + std::to_string(k)));
    if (name.starts_with("masked_")) {
      op.read_masks(op.layer.mask_operand(), op.layer.mask_operand());
      add(testing::as<T>(file.values("mask")));
    }
    REQUIRE(op.out().size() == file.example_shape(name + "/y").size());
    const auto run = testing::run_layer<D>(op, file.count(name + "/x"), values("x"),
                                           testing::as<T>(weights<L>(file, in, name + "/param/")),
                                           values("c"), options);
    CHECK(testing::relative_error(run.y, values("y")) < tolerance<D>);
    CHECK(testing::relative_error(run.dx, values("dx")) < tolerance<D>);
    CHECK(testing::relative_error(run.dw, weights<L>(file, in, name + "/d/")) < tolerance<D>);
    if (op.layer.operands > 1)
      CHECK(testing::relative_error(run.dx2, values("d_initial/0")) < tolerance<D>);
    if (op.layer.operands > 2)
      CHECK(testing::relative_error(run.more_dx[0], values("d_initial/1")) < tolerance<D>);
  }
}
template <class D>
void meets_recurrent_states() {
  using ls::go_backwards, ls::initial_state, ls::return_sequences, ls::return_state;
  const GoldenFile file("recurrent_states");
  constexpr auto before = ls::reset_after(false);
  const auto meets = [&]<class L>(const char* name, L) {
    meets_recurrent_states<D, L>(file, name);
  };
  meets("lstm", ls::LSTM<4, return_sequences, return_state, initial_state>{});
  meets("lstm_last", ls::LSTM<3, return_state, go_backwards>{});
  meets("lstm_one_step", ls::LSTM<17, initial_state>{});
  meets("gru", ls::GRU<5, return_state, initial_state>{});
  meets("gru_before",
        ls::GRU<4, before, return_sequences, return_state, go_backwards, initial_state>{});
  meets("simple_rnn", ls::SimpleRNN<3, ls::elu, return_sequences, return_state, initial_state>{});
  meets("masked_lstm", ls::LSTM<4, return_sequences, return_state, initial_state>{});
  meets("masked_lstm_last", ls::LSTM<4, initial_state>{});
  meets("masked_gru", ls::GRU<4, return_state, go_backwards, initial_state>{});
  meets("masked_gru_before", ls::GRU<4, before, return_sequences, return_state,
                                     ls::zero_output_for_mask, initial_state>{});
}

template <class D>
void meets_recurrent() {
  using ls::go_backwards, ls::no_bias, ls::recurrent_activation, ls::return_sequences;
  const GoldenFile file("recurrent");
  constexpr auto before = ls::reset_after(false);
  meets_recurrent_layer<D, ls::LSTM<5>>(file, "lstm");
  meets_recurrent_layer<D, ls::LSTM<4, go_backwards, return_sequences>>(file,
                                                                        "lstm_sequences_backwards");
  meets_recurrent_layer<D, ls::LSTM<3, ls::gelu, recurrent_activation(ls::relu6), no_bias>>(
      file, "lstm_activations");
  meets_recurrent_layer<D, ls::LSTM<17, ls::relu>>(file, "lstm_one_step");
  meets_recurrent_layer<D, ls::GRU<5>>(file, "gru");
  meets_recurrent_layer<D, ls::GRU<18, return_sequences, no_bias>>(file, "gru_sequences");
  meets_recurrent_layer<D, ls::GRU<3, go_backwards, recurrent_activation(ls::silu)>>(
      file, "gru_backwards");
  meets_recurrent_layer<D, ls::GRU<5, before>>(file, "gru_before");
  meets_recurrent_layer<D, ls::GRU<4, before, return_sequences, go_backwards, ls::softplus,
                                   recurrent_activation(ls::gelu)>>(file, "gru_before_sequences");
  meets_recurrent_layer<D, ls::GRU<3, before, no_bias>>(file, "gru_before_one_step");
  meets_recurrent_layer<D, ls::SimpleRNN<5>>(file, "simple_rnn");
  meets_recurrent_layer<D, ls::SimpleRNN<4, ls::elu, return_sequences, go_backwards, no_bias>>(
      file, "simple_rnn_sequences");
  const auto mask = file.values("mask");
  meets_recurrent_layer<D, ls::LSTM<4, return_sequences>>(file, "masked_lstm", mask);
  meets_recurrent_layer<D, ls::GRU<4, go_backwards>>(file, "masked_gru", mask);
  meets_recurrent_layer<D, ls::GRU<4, before, return_sequences, ls::zero_output_for_mask>>(
      file, "masked_gru_before", mask);
}

}  // namespace golden

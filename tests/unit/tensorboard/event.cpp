#include "lockstep/tensorboard/event.hpp"

#include <protozero/pbf_reader.hpp>

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tensorboard/record.hpp"
#include "support/event_reader.hpp"

namespace ls = lockstep;
namespace detail = lockstep::detail;

namespace {

std::string hexadecimal(const std::string& bytes) {
  std::string result;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    result += digits;
  }
  return result;
}

std::string record(const std::string& event) {
  std::string bytes;
  detail::append_record(bytes, event);
  return hexadecimal(bytes);
}

constexpr double at = 1700000000.0;

/// The only value of a summary.
testing::SummaryValue only_value(const std::string& summary) {
  const testing::Event event = testing::event_of(detail::summary_event(at, 7, summary));
  REQUIRE(event.values.size() == 1);
  CHECK(event.step == 7);
  CHECK(event.wall_time == at);
  return event.values[0];
}

}  // namespace

// The expected bytes are from TensorBoard's definitions, encoded with protoc.
TEST_CASE("scalars have the bytes of protoc") {
  std::string summary;
  detail::append_scalar(summary, "loss", 0.5);
  CHECK(record(detail::summary_event(at, 7, summary)) ==
        "1a00000000000000129bd82d0900000040fc54d94110072a0d0a0b0a046c6f7373150000003f2c75eab7");
}

TEST_CASE("scalars as tensors have the bytes of protoc") {
  std::string summary;
  detail::append_tensor_scalar(summary, "loss", 0.5);
  CHECK(record(detail::summary_event(at, 7, summary)) ==
        "300000000000000095f5d05f0900000040fc54d94110072a230a210a046c6f7373420a080112002a040000003f"
        "4a0d0a090a077363616c6172732001e8b83c5e");
}

TEST_CASE("a file's first record has the bytes of protoc") {
  CHECK(record(detail::version_event(at)) ==
        "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
}

TEST_CASE("a restart has the bytes of protoc") {
  CHECK(hexadecimal(detail::restart_event(at, 7)) == "0900000040fc54d94110073a020801");
}

TEST_CASE("strings that are not UTF-8 are replaced, since readers would stop at them") {
  const std::string bad = "caf\xE9", good = "caf\xEF\xBF\xBD";
  std::string scalar, tensor, text, start;
  detail::append_scalar(scalar, bad, 1);
  CHECK(only_value(scalar).tag == good);
  detail::append_tensor_scalar(tensor, bad, 1);
  CHECK(only_value(tensor).tag == good);
  detail::append_text(text, "note", bad);
  CHECK(only_value(text).strings == std::vector<std::string>{good});
  const std::vector<ls::HParam> hparams{{bad, bad}};
  detail::append_session_start(start, hparams, at);
  const std::vector<ls::GraphNode> nodes{{bad, bad, {bad}, std::nullopt, {{bad, "x"}}}};
  const auto count = [](const std::string& in, const std::string& what) {
    std::size_t n = 0;
    for (std::size_t i = in.find(what); i != in.npos; i = in.find(what, i + 1)) ++n;
    return n;
  };
  const std::string content = only_value(start).plugin_content;
  CHECK(count(content, good) == 2);
  CHECK(count(content, "\xE9") == 0);
  const std::string graph = testing::event_of(detail::graph_event(at, nodes)).graph;
  CHECK(count(graph, good) == 4);
  CHECK(count(graph, "\xE9") == 0);
}

TEST_CASE("a histogram is a tensor of doubles with three columns") {
  std::string summary;
  const std::vector<ls::HistogramBucket> buckets{{0, 0.5, 1}, {0.5, 1, 2}};
  detail::append_histogram(summary, "w", buckets);
  const auto value = only_value(summary);
  CHECK(value.tag == "w");
  CHECK(value.plugin == "histograms");
  CHECK(value.data_class == 2);
  CHECK(value.dtype == 2);
  CHECK(value.shape == std::vector<std::int64_t>{2, 3});
  CHECK(value.doubles() == std::vector<double>{0, 0.5, 1, 0.5, 1, 2});
}

TEST_CASE("a histogram without buckets keeps its extents") {
  std::string summary;
  detail::append_histogram(summary, "w", {});
  CHECK(only_value(summary).shape == std::vector<std::int64_t>{0, 3});
}

TEST_CASE("images are strings, the width first") {
  std::string summary;
  const std::vector<std::string> png{"first", std::string("\0second", 7)};
  detail::append_images(summary, "w", ls::shape(2, 3, 1), png);
  const auto value = only_value(summary);
  CHECK(value.plugin == "images");
  CHECK(value.data_class == 3);
  CHECK(value.dtype == 7);
  CHECK(value.shape == std::vector<std::int64_t>{4});
  CHECK(value.strings == std::vector<std::string>{"3", "2", png[0], png[1]});
}

TEST_CASE("a text is a string of rank 0") {
  std::string summary;
  detail::append_text(summary, "note", "**bold**");
  const auto value = only_value(summary);
  CHECK(value.plugin == "text");
  CHECK(value.dtype == 7);
  CHECK(value.shape.empty());
  CHECK(value.strings == std::vector<std::string>{"**bold**"});
}

TEST_CASE("values follow each other in one summary") {
  std::string summary;
  detail::append_scalar(summary, "a", 1);
  detail::append_text(summary, "b", "text");
  detail::append_scalar(summary, "c", -2.5);
  const auto event = testing::event_of(detail::summary_event(at, 0, summary));
  REQUIRE(event.values.size() == 3);
  CHECK(event.values[0].simple_value == 1);
  CHECK(event.values[1].strings.size() == 1);
  CHECK(event.values[2].tag == "c");
  CHECK(event.values[2].simple_value == -2.5f);
}

TEST_CASE("hyperparameters are numbers, truth values and texts") {
  std::string summary;
  const std::vector<ls::HParam> hparams{
      {"units", 64}, {"rate", 0.0}, {"augment", false}, {"optimizer", "adam"}};
  detail::append_session_start(summary, hparams, at);
  const auto value = only_value(summary);
  CHECK(value.tag == "_hparams_/session_start_info");
  CHECK(value.plugin == "hparams");
  CHECK(value.dtype == 1);
  CHECK(value.shape == std::vector<std::int64_t>{0});

  protozero::pbf_reader data(value.plugin_content);
  REQUIRE(data.next(3));
  protozero::pbf_reader start = data.get_message();
  std::vector<std::string> found;
  while (start.next()) {
    if (start.tag() == 5) {
      CHECK(start.get_double() == at);
      continue;
    }
    REQUIRE(start.tag() == 1);
    protozero::pbf_reader entry = start.get_message();
    REQUIRE(entry.next(1));
    std::string text = entry.get_string() + " ";
    REQUIRE(entry.next(2));
    protozero::pbf_reader number = entry.get_message();
    REQUIRE(number.next());
    switch (number.tag()) {
      case 2:
        text += std::to_string(number.get_double());
        break;
      case 3:
        text += number.get_string();
        break;
      case 4:
        text += number.get_bool() ? "true" : "false";
        break;
      default:
        FAIL("unknown kind of a value");
    }
    found.push_back(text);
  }
  CHECK(found == std::vector<std::string>{"units 64.000000", "rate 0.000000", "augment false",
                                          "optimizer adam"});
}

TEST_CASE("the end of a session has its status") {
  std::string summary;
  detail::append_session_end(summary, detail::SessionStatus::failed, at);
  const auto value = only_value(summary);
  CHECK(value.tag == "_hparams_/session_end_info");
  CHECK(hexadecimal(value.plugin_content) ==
        "220b0802110000"
        "0040fc54d941");
}

TEST_CASE("a graph has its nodes, their inputs and shapes") {
  const std::vector<ls::GraphNode> nodes{
      {"input", "Input", {}, ls::shape(4), {}},
      {"dense/kernel", "Parameter", {}, std::nullopt, {{"shape", "(4, 2)"}}},
      {"dense/Dense", "Dense", {"input", "dense/kernel"}, ls::shape(2), {}}};
  const auto event = testing::event_of(detail::graph_event(at, nodes));
  protozero::pbf_reader graph(event.graph);
  std::vector<std::string> found;
  bool has_version = false;
  while (graph.next()) {
    if (graph.tag() == 4) {
      has_version = true;
      graph.skip();
      continue;
    }
    REQUIRE(graph.tag() == 1);
    std::string text;
    protozero::pbf_reader node = graph.get_message();
    while (node.next())
      if (node.tag() < 4) {
        text += node.get_string() + " ";
      } else {
        protozero::pbf_reader entry = node.get_message();
        REQUIRE(entry.next(1));
        text += entry.get_string() + "=";
        REQUIRE(entry.next(2));
        text += hexadecimal(entry.get_bytes());
      }
    found.push_back(text);
  }
  CHECK(has_version);
  // AttrValue: 0a list, 3a shape, 12 dim, 08 size; 12 string.
  CHECK(found == std::vector<std::string>{
                     "input Input _output_shapes=0a133a11120b08ffffffffffffffffff0112020804",
                     "dense/kernel Parameter shape=1206"
                     "28342c203229",
                     "dense/Dense Dense input dense/kernel "
                     "_output_shapes=0a133a11120b08ffffffffffffffffff0112020802"});
}

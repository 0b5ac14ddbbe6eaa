#include "support/sentences.hpp"

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/core/error.hpp>
#include <lockstep/core/rng.hpp>
#include <lockstep/data/sources/npz.hpp>

namespace support {

namespace ls = lockstep;

namespace {

/// Numbers of words, in ranges: 1 to 4 negations, then positive, negative and other words.
constexpr std::uint32_t negations = 4, opinions = 50, others = 300 - negations - 2 * opinions;

/// Writes words and returns the sum of their opinions, which is 0 if they are undecided.
int draw_words(ls::Philox& random, std::span<float> words) {
  int sum = 0;
  bool negated = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const double kind = negated ? 0 : random.uniform();
    std::uint32_t word = 1;
    if (kind < 0.2) {
      const bool positive = random.below(2) == 1;
      word += negations + (positive ? 0 : opinions) + random.below(opinions);
      sum += positive != negated ? 1 : -1;
      negated = false;
    } else if (kind < 0.3 && i + 1 < words.size()) {
      word += random.below(negations);
      negated = true;
    } else {
      word += negations + 2 * opinions + random.below(others);
    }
    words[i] = static_cast<float>(word);
  }
  return sum;
}

ls::Tensors<float, float> draw(std::size_t count, int steps, std::uint64_t seed,
                               std::string_view part) {
  const auto row = static_cast<std::size_t>(steps);
  std::vector<float> words(count * row), labels;
  for (std::size_t i = 0; i < count; ++i) {
    ls::Philox random(ls::mix(seed, ls::hash_name(part)), i);
    const auto length = 3 + random.below(static_cast<std::uint32_t>(steps) - 2);
    const std::span<float> sentence(&words[i * row], length);
    int sum = 0;
    while (sum == 0) sum = draw_words(random, sentence);
    labels.push_back(sum > 0 ? 1.0f : 0.0f);
  }
  return {std::move(words), ls::shape(steps), std::move(labels), ls::shape(1)};
}

/// \throws lockstep::DataError unless all numbers are integers from 0 to `most`.
void check_integers(const ls::NpyArray& array, std::span<const float> numbers, int most) {
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (!(numbers[i] >= 0 && numbers[i] <= static_cast<float>(most)) ||
        numbers[i] != std::trunc(numbers[i]))
      throw ls::DataError(array.path,
                          "element {} is {}, but the model expects integers from 0 to {}", i,
                          numbers[i], most);
}

ls::Tensors<float, float> read_part(const ls::NpzFile& file, const std::string& part,
                                    const SentenceShape& model) {
  const ls::NpyArray x = file.array("x_" + part), y = file.array("y_" + part);
  auto sentences = ls::tensors<float, float>(x, y);
  if (sentences.shape() != ls::shape(model.steps))
    throw ls::DataError(x.path,
                        "the sentences have shape {}, but the model expects {}; pad or cut them",
                        to_string(sentences.shape()), to_string(ls::shape(model.steps)));
  if (sentences.target_shape() != ls::shape(1))
    throw ls::DataError(y.path, "the labels have shape {}, but the model expects one number each",
                        to_string(sentences.target_shape()));
  check_integers(x, sentences.features(), model.vocabulary - 1);
  check_integers(y, sentences.targets(), 1);
  return sentences;
}

}  // namespace

Parts drawn_sentences(int steps, std::uint64_t seed) {
  return {draw(8'000, steps, seed, "sentences"), draw(2'000, steps, seed, "test sentences")};
}

Parts read_sentences(const std::string& path, const SentenceShape& shape, bool validate) {
  const ls::NpzFile file = ls::NpzFile::read(path);
  const auto train = read_part(file, "train", shape);
  return {train, validate ? read_part(file, "test", shape) : train};
}

}  // namespace support

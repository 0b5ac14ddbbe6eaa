#include "support/text.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>

#include <lockstep/core/error.hpp>
#include <lockstep/core/rng.hpp>
#include <lockstep/files/byte_reader.hpp>

namespace support {

namespace ls = lockstep;

namespace {

/// Draws sentences, and counts what each draw has in nats. Different draws give different text, so that
/// their sum is what the text has.
class Grammar {
 public:
  explicit Grammar(std::uint64_t seed) : random_(ls::mix(seed, ls::hash_name("grammar"))) {}

  void add_sentence() {
    const bool plural = add_noun();
    if (chance(0.25)) {
      text_ += " that ";
      const bool inner = add_noun();
      add_space();
      add_verb(inner);
    }
    add_space();
    add_verb(plural);
    if (chance(0.5)) {
      add_space();
      add_noun();
    }
    text_ += ".\n";
  }
  const std::string& text() const { return text_; }
  double nats() const { return nats_; }

 private:
  std::uint32_t draw(std::uint32_t count) {
    nats_ += std::log(count);
    return random_.below(count);
  }
  bool chance(double probability) {
    const bool is = random_.uniform() < probability;
    nats_ -= std::log(is ? probability : 1 - probability);
    return is;
  }
  void add_space() { text_ += ' '; }
  /// Returns whether the noun is a plural.
  bool add_noun() {
    static constexpr std::array<std::string_view, 16> nouns{
        "cat",  "dog",   "bird", "farmer", "girl",   "boy",    "king", "miller",
        "goat", "horse", "owl",  "sailor", "doctor", "tailor", "frog", "judge"};
    (text_ += "the ") += nouns[draw(nouns.size())];
    const bool plural = chance(0.5);
    if (plural) text_ += 's';
    return plural;
  }
  void add_verb(bool plural) {
    static constexpr std::array<std::string_view, 16> verbs{
        "see",  "follow", "hear", "like",  "know", "find", "call",  "help",
        "draw", "greet",  "meet", "trust", "lead", "warn", "avoid", "thank"};
    text_ += verbs[draw(verbs.size())];
    if (!plural) text_ += 's';
  }

  ls::Philox random_;
  std::string text_;
  double nats_ = 0;
};

std::uint32_t number_at(const std::vector<std::uint8_t>& data, std::size_t offset) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i-- > 0;) number = number << 8 | data[offset + i];
  return number;
}

/// Bytes of the header of llm.c; 0 if there is none.
std::size_t header_size(const std::vector<std::uint8_t>& data, const std::string& path) {
  constexpr std::size_t size = 256 * 4;
  constexpr std::uint32_t magic = 20240520, version = 1;
  if (data.size() < size || number_at(data, 0) != magic) return 0;
  if (number_at(data, 4) != version)
    throw ls::DataError(path, "the header has version {}, but only {}, of 16-bit tokens, is known",
                        number_at(data, 4), version);
  const std::uint32_t tokens = number_at(data, 8);
  if ((data.size() - size) / 2 != tokens || data.size() % 2 != 0)
    throw ls::DataError(path, "the header announces {} tokens, but {} bytes follow; is it whole?",
                        tokens, data.size() - size);
  return size;
}

}  // namespace

Text Text::read(const std::string& path, int vocabulary) {
  std::vector<std::uint8_t> data = ls::detail::read_whole(path);
  const bool is_binary = path.ends_with(".bin");
  const std::size_t begin = is_binary ? header_size(data, path) : 0;
  if (is_binary && data.size() % 2 != 0)
    throw ls::DataError(path, "has {} bytes, which are not a whole number of 16-bit tokens",
                        data.size());
  Text text(std::move(data), is_binary ? 2 : 1, begin);
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] >= static_cast<std::uint32_t>(vocabulary))
      throw ls::DataError(
          path,
          "token {} is {}, but the model's vocabulary has {}; choose a --size with a "
          "larger one, or encode the text again",
          i, text[i], vocabulary);
  return text;
}

Text Text::generated(std::uint64_t seed) {
  constexpr std::size_t length = 240'000;
  Grammar grammar(seed);
  while (grammar.text().size() < length) grammar.add_sentence();
  const std::string& all = grammar.text();
  return {{all.begin(), all.end()}, 1, 0, grammar.nats() / static_cast<double>(all.size())};
}

void Text::check_length(int steps, bool validate, const std::string& name) const {
  const auto check = [&](std::size_t begin, std::size_t end, const char* part) {
    if (windows(begin, end, steps) == 0)
      throw ls::Error(
          "{} has {} tokens, of which {} are for {}, but a window and the token after it have {}; "
          "use a longer text or a smaller --context",
          name, size(), end - begin, part, steps + 1);
  };
  check(0, split(), "training");
  if (validate) check(split(), size(), "validation");
}

}  // namespace support

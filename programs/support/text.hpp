/// \file
/// A text as tokens: of a file, or of a generated grammar. Invariant: each token is in the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace support {

/// Tokens in memory: one byte each, or two in little-endian order. Copies share them.
class Text {
 public:
  /// The bytes of a text file; or, if the name ends in .bin, 16-bit numbers without a header, as
  /// nanoGPT writes them, or after the header of llm.c (256 32-bit numbers that begin with 20240520).
  /// \throws lockstep::FileError, or lockstep::DataError naming the token that is not in the vocabulary
  static Text read(const std::string& path, int vocabulary);

  /// Sentences of a small grammar, one a line, drawn by the seed. A verb agrees with the noun that it belongs to, also
  /// across a relative clause:
  ///
  ///     the cats that the dog sees follow the bird.
  static Text generated(std::uint64_t seed);

  std::size_t size() const { return (data_->size() - begin_) / width_; }
  std::uint32_t operator[](std::size_t i) const {
    const std::uint8_t* const at = data_->data() + begin_ + i * width_;
    return width_ == 1 ? at[0] : static_cast<std::uint32_t>(at[0] | at[1] << 8);
  }
  /// Nats per character of the draws of a generated text: the expected loss of a model that has learned
  /// the grammar and sees each sentence from its beginning.
  double entropy() const { return entropy_; }

  /// The first token of the part to test with, a tenth of the text.
  std::size_t split() const { return size() - size() / 10; }
  /// Examples of `steps` tokens, each with the token after it, among the tokens [begin, end).
  static std::size_t windows(std::size_t begin, std::size_t end, int steps) {
    return begin < end ? (end - begin - 1) / static_cast<std::size_t>(steps) : 0;
  }
  /// \throws lockstep::Error if there is no window to train on, or with `validate` none to test with.
  /// `name` describes the text.
  void check_length(int steps, bool validate, const std::string& name) const;

 private:
  Text(std::vector<std::uint8_t> data, std::size_t width, std::size_t begin, double entropy = 0)
      : data_(std::make_shared<const std::vector<std::uint8_t>>(std::move(data))),
        width_(width),
        begin_(begin),
        entropy_(entropy) {}

  std::shared_ptr<const std::vector<std::uint8_t>> data_;
  std::size_t width_, begin_;
  double entropy_;
};

}  // namespace support

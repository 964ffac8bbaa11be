#include "tandem/data/prepare/encode_block.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/json_text.h"
#include "tandem/base/utf8.h"
#include "tandem/text/characters.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

// What the parser says, without its own name and number.
std::string reason_of(const std::string& message) {
  const size_t at = message.find("parse error");
  std::string reason = at == std::string::npos ? message : message.substr(at);
  if (const size_t colon = reason.find(": "); colon != std::string::npos) reason = reason.substr(colon + 2);
  return printable(reason.substr(0, 200));
}

// Every how manyth document of a file is for evaluation: evenly spread, and known from its number alone. Each
// file begins at another place, so that many short ones have their share, too.
bool is_held_out(size_t file, int64_t number, double fraction) {
  constexpr double kGolden = 0.6180339887498949;  // multiples of it are spread evenly between whole numbers
  const double begin = static_cast<double>(file) * kGolden;
  const auto share_of = [&](int64_t count) {
    return std::floor(begin - std::floor(begin) + static_cast<double>(count) * fraction);
  };
  return share_of(number + 1) > share_of(number);
}

class BlockEncoder {
 public:
  BlockEncoder(const InputFile& file, const EncodeOptions& options, const Tokenizer& tokenizer)
      : file_(file),
        options_(options),
        tokenizer_(tokenizer),
        separator_(separator_of(tokenizer, options.separate)),
        is_bytes_(tokenizer.name() == kBytes) {}

  EncodedBlock encode(const Block& block) {
    file_number_ = block.file;
    if (block.is_piece) {
      add_piece(block);
    } else if (file_.format == InputFormat::JsonLines) {
      add_lines(block);
    } else {
      add_documents(block);
    }
    return std::move(out_);
  }

 private:
  std::string_view valid(std::string_view text) {
    if (is_bytes_ || is_utf8(text)) return text;
    valid_ = valid_text(text, out_.num_replaced);
    return valid_;
  }

  void add_piece(const Block& block) {
    EncodedPart& part = out_.parts[static_cast<size_t>(block.split)];
    if (block.begins) {
      part.documents.push_back(0);
      append(tokenizer_.before(), part);
    }
    tokenizer_.encode(valid(block.text), part.tokens);
    if (block.ends) append(tokenizer_.after(), part);
  }

  void add_documents(const Block& block) {
    std::string_view rest = block.text;
    for (int64_t number = block.place.record; !rest.empty(); ++number)
      add_document(number, valid(take_record(rest, options_.split_on)));
  }

  void add_lines(const Block& block) {
    int64_t replaced = 0;
    std::string valid_lines;
    std::string_view rest = block.text;
    if (!is_utf8(rest)) {
      valid_lines = valid_text(rest, replaced);
      rest = valid_lines;
    }
    out_.num_replaced += replaced;
    for (int64_t number = block.place.record; !rest.empty(); ++number) {
      const std::string_view line = take_record(rest, "\n");
      if (!is_blank(line)) add_line(number, line);
    }
  }

  void add_line(int64_t number, std::string_view line) {
    const auto refuse = [&](std::string_view what) {
      throw DataError("{}:{}: {}", file_.path.string(), number + 1, what);
    };
    Json json;
    try {
      check_json_depth(line, fmt::format("{}:{}", file_.path.string(), number + 1));
      json = Json::parse(line);
    } catch (const Json::exception& error) {
      if (number == 0 && line.find_first_not_of("[ \t\r") == std::string_view::npos)
        refuse("a JSON array: expected an object on each line; turn it into lines: jq -c '.[]' FILE");
      refuse(fmt::format("not valid JSON: {}", reason_of(error.what())));
    }
    const Json* value = &json;
    for (std::string_view path = options_.field; !path.empty();) {
      const std::string_view name = take_record(path, ".");
      if (!value->is_object())
        refuse(fmt::format("expected an object with '{}', found {}", options_.field, json.type_name()));
      const auto found = value->find(std::string(name));
      if (found == value->end())
        refuse(fmt::format("no field '{}'{}; name the one with the text: --field NAME", options_.field,
                           known_fields(*value)));
      value = &*found;
    }
    if (!value->is_string())
      refuse(fmt::format("expected text in '{}', found {}", options_.field, value->type_name()));
    const auto& text = value->get_ref<const std::string&>();
    if (is_bytes_ && text.find('\0') != std::string::npos)
      refuse("its text has a byte 0, which stands between documents; remove it");
    add_document(number, text);
  }

  static std::string known_fields(const Json& object) {
    std::string names;
    for (const auto& [name, value] : object.items()) {
      if (names.size() > 80) return names + ", ...)";
      names += (names.empty() ? " (it has " : ", ") + printable(name);
    }
    return names.empty() ? "" : names + ")";
  }

  void add_document(int64_t number, std::string_view text) {
    if (text.empty()) return;
    const bool held_out = is_held_out(file_number_, number, options_.eval_fraction);
    EncodedPart& part = out_.parts[static_cast<size_t>(held_out ? Split::Eval : Split::Train)];
    const size_t before = part.tokens.size();
    if (before > 0 && separator_ >= 0) part.tokens.push_back(separator_);
    const size_t begin = part.tokens.size();
    append(tokenizer_.before(), part);
    tokenizer_.encode(text, part.tokens);
    append(tokenizer_.after(), part);
    if (part.tokens.size() == begin) return part.tokens.resize(before);  // of no token: no document
    part.documents.push_back(static_cast<int64_t>(begin));
  }

  static void append(std::span<const int32_t> tokens, EncodedPart& part) {
    part.tokens.insert(part.tokens.end(), tokens.begin(), tokens.end());
  }

  const InputFile& file_;
  const EncodeOptions& options_;
  const Tokenizer& tokenizer_;
  const int32_t separator_;
  const bool is_bytes_;
  size_t file_number_ = 0;
  std::string valid_;
  EncodedBlock out_;
};

}  // namespace

int32_t separator_of(const Tokenizer& tokenizer, bool separate) {
  const auto after = tokenizer.after();
  if (!separate || (!after.empty() && after.back() == tokenizer.separator())) return -1;
  return tokenizer.separator();
}

EncodedBlock encode_block(const Block& block, const InputFile& file, const EncodeOptions& options,
                          const Tokenizer& tokenizer) {
  return BlockEncoder(file, options, tokenizer).encode(block);
}

}  // namespace tandem

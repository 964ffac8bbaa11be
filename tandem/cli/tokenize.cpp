#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tandem/base/file.h"
#include "tandem/base/utf8.h"
#include "tandem/cli/command.h"
#include "tandem/text/tokenizer.h"

namespace tandem::cli {
namespace {

struct Flags {
  std::string tokenizer, text, file, lines;
  bool decode = false, json = false, skip_special = false, whole = false;
};

// A JSON value a line; "-" is standard input.
class Lines {
 public:
  explicit Lines(const std::string& name) : name_(name) {
    if (name == "-") return;
    require_regular(name);
    file_.open(name);
    if (!file_) throw IoError("{}: cannot be opened", name);
  }
  bool next(nlohmann::json& value) {
    std::string line;
    if (!std::getline(name_ == "-" ? std::cin : file_, line)) return false;
    ++number_;
    value = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    return true;
  }
  [[noreturn]] void refuse(std::string_view expected) const {
    throw DataError("{}:{}: expected {}", name_, number_, expected);
  }

 private:
  const std::string name_;
  std::ifstream file_;
  int64_t number_ = 0;
};

std::vector<int32_t> ids_of(const nlohmann::json& value) {
  std::vector<int32_t> ids;
  if (!value.is_array()) return ids;
  for (const nlohmann::json& id : value) ids.push_back(id.is_number_integer() ? id.get<int32_t>() : -1);
  return ids;
}

// Text in JSON is always UTF-8: what is not becomes U+FFFD.
std::string to_json(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void convert_lines(const Tokenizer& tokenizer, const Flags& flags) {
  Lines lines(flags.lines);
  nlohmann::json value;
  std::string out;
  while (lines.next(value)) {
    if (flags.decode) {
      if (!value.is_array()) lines.refuse("a JSON array of ids");
      out = to_json(tokenizer.decode(ids_of(value), flags.skip_special));
    } else {
      if (!value.is_string()) lines.refuse("a JSON string");
      std::vector<int32_t> ids;
      tokenizer.encode(value.get_ref<const std::string&>(), ids);
      out = to_json(ids);
    }
    std::printf("%s\n", out.c_str());
  }
}

void show(const Tokenizer& tokenizer, const std::string& text, const Flags& flags) {
  std::vector<int32_t> ids;
  if (flags.whole) {
    tokenizer.encode_whole(text, ids);
  } else {
    tokenizer.encode(text, ids);
  }
  std::vector<std::string> pieces;
  for (int32_t id : ids) pieces.push_back(tokenizer.piece(id));
  if (flags.json) {
    std::printf("%s\n", to_json({{"ids", ids}, {"pieces", pieces}}).c_str());
    return;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::printf("%7d  %s\n", ids[i], printable(pieces[i]).c_str());
}

void show_text(const Tokenizer& tokenizer, const std::string& text, const Flags& flags) {
  const nlohmann::json given = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!given.is_array())
    throw ConfigError("--decode: expected ids as a JSON array such as '[1, 2, 3]', found '{}'",
                      printable(text));
  const std::string decoded = tokenizer.decode(ids_of(given), flags.skip_special);
  std::printf("%s\n", flags.json ? to_json({{"text", decoded}}).c_str() : decoded.c_str());
}

}  // namespace

void add_tokenize(CLI::App& app, Action& action) {
  CLI::App* command = add_command(app, "tokenize", "text to the tokens of a tokenizer, and back",
                                  "tandem tokenize bytes \"Once upon a time\"   (or a tokenizer.json, a "
                                  "sentencepiece .model, or a directory with one)");
  auto flags = std::make_shared<Flags>();
  command
      ->add_option("TOKENIZER", flags->tokenizer,
                   "bytes, a tokenizer.json, a sentencepiece .model, or a directory with one")
      ->required()
      ->type_name("");
  command->add_option("TEXT", flags->text, "what to tokenize")->type_name("");
  command->add_option("--file", flags->file, "tokenize what is in it")->type_name("FILE");
  command
      ->add_option("--lines", flags->lines,
                   "a JSON string a line in, a JSON array of ids a line out; - is standard input")
      ->type_name("FILE");
  command->add_flag("--decode", flags->decode, "the other way round: ids, as a JSON array, to text");
  command->add_flag("--skip-special", flags->skip_special, "with --decode: leave special tokens out");
  command->add_flag("--whole", flags->whole, "with the tokens that a model expects around a text");
  command->add_flag("--json", flags->json, "ids and pieces as JSON");
  command->callback([flags, command, &action] {
    action.run = [flags, command] {
      const bool has_text = command->get_option("TEXT")->count() > 0;
      if (static_cast<int>(has_text) + !flags->file.empty() + !flags->lines.empty() != 1)
        throw ConfigError("tokenize: expected one of TEXT, --file FILE and --lines FILE");
      const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(flags->tokenizer);
      if (!flags->lines.empty()) {
        convert_lines(*tokenizer, *flags);
        return ExitCode::Done;
      }
      const std::string text = has_text ? flags->text : read_text(flags->file);
      if (flags->decode) {
        show_text(*tokenizer, text, *flags);
      } else {
        show(*tokenizer, text, *flags);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace tandem::cli

#include "tandem/hub/gguf_tokenizer.h"

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tandem/base/error.h"
#include "tandem/base/file.h"
#include "tandem/hub/strict_json.h"

namespace tandem::hub {
namespace {

using nlohmann::json;

enum TokenKind : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct PreTokenizer {
  std::string_view sign;  // within the text of the pre-tokenizer
  std::string_view name;  // llama.cpp's
};

// How text is cut before merges. llama.cpp knows it by name only.
constexpr PreTokenizer kPreTokenizers[] = {
    {R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)", "llama-bpe"},
    {R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)", "qwen2"},
};

class TokenizerReader {
 public:
  TokenizerReader(GgufWriter& out, const std::filesystem::path& directory, int64_t vocab)
      : out_(out), directory_(directory), vocab_(static_cast<size_t>(vocab)) {}

  void add() {
    const json file = read("tokenizer.json");
    const json& model = file.at("model");
    if (model.value("type", "BPE") != "BPE") refuse("only BPE goes into GGUF");
    tokens_.resize(vocab_);
    kinds_.assign(vocab_, kUnused);
    for (size_t i = 0; i < vocab_; ++i) tokens_[i] = fmt::format("[PAD{}]", i);
    for (const auto& [text, id] : model.at("vocab").items()) set(id.get<int64_t>(), text, kNormal);
    const json added_tokens = file.value("added_tokens", json::array());
    for (const json& added : added_tokens)
      set(added.at("id").get<int64_t>(), added.at("content").get<std::string>(),
          added.value("special", false) ? kControl : kUserDefined);
    if (model.value("byte_fallback", false)) {
      add_sentencepiece(file, model);
    } else {
      out_.add("tokenizer.ggml.model", "gpt2");
      out_.add("tokenizer.ggml.pre", pre_tokenizer(file.value("pre_tokenizer", json())));
      out_.add("tokenizer.ggml.tokens", tokens_);
      out_.add("tokenizer.ggml.token_type", kinds_);
      out_.add("tokenizer.ggml.merges", merges(model));
    }
    add_special();
  }

 private:
  json read(const char* name) const {
    const std::filesystem::path path = directory_ / name;
    return is_there(path) ? parse_strictly(read_text(path), path.string()) : json::object();
  }

  [[noreturn]] void refuse(std::string_view why) const {
    throw ConfigError("{}: {}", (directory_ / "tokenizer.json").string(), why);
  }

  void set(int64_t id, const std::string& text, TokenKind kind) {
    if (id < 0 || static_cast<size_t>(id) >= vocab_)
      refuse(fmt::format("token {} is not of the model's {}", id, vocab_));
    tokens_[static_cast<size_t>(id)] = text;
    kinds_[static_cast<size_t>(id)] = kind;
  }

  static std::vector<std::string> merges(const json& model) {
    std::vector<std::string> list;
    for (const json& merge : model.at("merges"))
      list.push_back(merge.is_string() ? merge.get<std::string>()
                                       : fmt::format("{} {}", merge.at(0).get<std::string>(),
                                                     merge.at(1).get<std::string>()));
    return list;
  }

  // Every regular expression of the pre-tokenizer, and whether digits are cut apart.
  static void collect(const json& node, std::string& patterns, bool& digits) {
    if (!node.is_object()) return;
    if (node.value("type", "") == "Digits") digits = true;
    if (node.contains("pattern") && node["pattern"].is_object())
      patterns += node["pattern"].value("Regex", "") + "\n";
    for (const json& part : node.value("pretokenizers", json::array())) collect(part, patterns, digits);
  }

  std::string pre_tokenizer(const json& node) const {
    std::string patterns;
    bool digits = false;
    collect(node, patterns, digits);
    for (const PreTokenizer& known : kPreTokenizers) {
      if (patterns.find(known.sign) != std::string::npos) return std::string(known.name);
    }
    if (!patterns.empty()) refuse("llama.cpp's name of its pre-tokenizer is not known here");
    return digits ? "smollm" : "gpt-2";
  }

  // What llama.cpp merges first is what has the highest score.
  void add_sentencepiece(const json& file, const json& model) {
    std::unordered_map<std::string, float> rank;
    float next = 0;
    for (const std::string& merge : merges(model)) {
      std::string joined = merge;
      joined.erase(joined.find(' '), 1);
      rank.emplace(std::move(joined), next--);
    }
    std::vector<float> scores;
    const std::string unknown = model.contains("unk_token") && model["unk_token"].is_string()
                                    ? model["unk_token"].get<std::string>()
                                    : "";
    for (size_t i = 0; i < vocab_; ++i) {
      const std::string& token = tokens_[i];
      const auto found = rank.find(token);
      scores.push_back(found == rank.end() ? next : found->second);
      if (token.size() == 6 && token.starts_with("<0x") && token.ends_with(">")) kinds_[i] = kByte;
      if (token == unknown) kinds_[i] = kUnknown;
    }
    out_.add("tokenizer.ggml.model", "llama");
    out_.add("tokenizer.ggml.pre", "default");
    out_.add("tokenizer.ggml.tokens", tokens_);
    out_.add("tokenizer.ggml.scores", scores);
    out_.add("tokenizer.ggml.token_type", kinds_);
    out_.add("tokenizer.ggml.add_space_prefix",
             file.value("normalizer", json()).dump().find("Prepend") != std::string::npos);
  }

  void add_special() {
    const json config = read("config.json"), settings = read("tokenizer_config.json");
    for (const auto& [key, name] : {std::pair("bos_token_id", "bos"), std::pair("eos_token_id", "eos"),
                                    std::pair("pad_token_id", "padding")}) {
      json id = config.value(key, json());
      if (id.is_array() && !id.empty()) id = json(id.front());
      if (id.is_number_unsigned() && id.get<uint64_t>() < vocab_)
        out_.add(fmt::format("tokenizer.ggml.{}_token_id", name), id.get<uint32_t>());
    }
    for (const char* key : {"add_bos_token", "add_eos_token"}) {
      if (settings.contains(key) && settings[key].is_boolean())
        out_.add(fmt::format("tokenizer.ggml.{}", key), settings[key].get<bool>());
    }
    if (is_there(directory_ / "chat_template.jinja")) {
      out_.add("tokenizer.chat_template", read_text(directory_ / "chat_template.jinja"));
    } else if (settings.contains("chat_template") && settings["chat_template"].is_string()) {
      out_.add("tokenizer.chat_template", settings["chat_template"].get<std::string>());
    }
  }

  GgufWriter& out_;
  const std::filesystem::path& directory_;
  size_t vocab_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> kinds_;
};

}  // namespace

void add_tokenizer(GgufWriter& out, const std::filesystem::path& directory, int64_t vocab) {
  if (directory.empty() || !is_there(directory / "tokenizer.json"))
    throw ConfigError(
        "--format gguf: the run keeps no tokenizer.json, which the file needs; start it from a directory "
        "that has one");
  try {
    TokenizerReader(out, directory, vocab).add();
  } catch (const nlohmann::json::exception& error) {
    throw DataError("{}: not a tokenizer of Hugging Face's: {}", (directory / "tokenizer.json").string(),
                    error.what());
  }
}

}  // namespace tandem::hub

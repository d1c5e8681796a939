// The regexes by `pre` name. They are facts of published vocabularies: a change here changes token ids.
// Qwen vocabularies also expect NFC-normalised text, which model files do not say and nothing here applies.
#include <string>

#include "text/pre_tokenizers.h"

namespace sluice::text {
namespace {

// Case folding is ASCII in practice; written out, it also keeps U+017F from passing for an s.
#define ENDINGS "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define OTHER "[^\\r\\n\\p{L}\\p{N}]?"

constexpr std::string_view kGpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr std::string_view kLlama3 = ENDINGS "|" OTHER "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view kQwen2 = ENDINGS "|" OTHER "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view kSeedCoder = ENDINGS "|" OTHER "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES;
constexpr std::string_view kQwen35 =
    ENDINGS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view kTekken =
    OTHER UPPER "*" LOWER "+|" OTHER UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
constexpr std::string_view kGpt4o = OTHER UPPER "*" LOWER "+(?:" ENDINGS ")?|" OTHER UPPER "+" LOWER "*(?:" ENDINGS
                                    ")?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
constexpr std::string_view kBailing =
    "'(?:[sdmtSDMT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|"
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDigit = "\\p{N}";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kDefaultPunctuation = "[\\p{P}\\$\\+<=>\\^~\\|]+";
constexpr std::string_view kFalconPunctuation = "[\\p{P}\\$\\+<=>\\^~\\|`]+";
constexpr std::string_view kCjk = "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+";
// Cased letters as DeepSeek LLM lists them: frozen ranges of one Unicode version, not \p{L&}.
constexpr std::string_view kDeepseekLetters =
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}"
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}"
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+";
constexpr std::string_view kDeepseekPunctuation =
    "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+";
// The look-behind changes no match and keeps a long run of spaces inside a text from being scanned once per space.
constexpr std::string_view kFinalSpaces = "(?<!\\s)\\s+$";
constexpr std::string_view kDeepseekV3Cjk = "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+";
constexpr std::string_view kDeepseekV3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES;

#undef ENDINGS
#undef SPACES
#undef UPPER
#undef LOWER
#undef OTHER

struct Family {
  PreTokenizerTraits traits;
  std::string_view names;  // between spaces
};

constexpr Family kFamilies[] = {
    {{{kGpt2}, false, false},
     " gpt-2 gpt2 phi-2 mpt olmo jais gigachat mellum modern-bert exaone4 trillion granite-docling a.x-4.0 jina-es jina-de jina-v1-en "
     " jina-v2-es jina-v2-de jina-v2-code roberta-bpe "},
    {{{kLlama3}, true, true},
     " llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 "},
    {{{kLlama3}, false, false},
     " dbrx smaug-bpe glm4 chatglm-bpe "},
    {{{kQwen2}, false, false},
     " qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 kormo "},
    {{{kQwen35}, false, false},
     " qwen35 "},
    {{{kDigit, kGpt2}, false, false},
     " smollm starcoder refact command-r codeshell exaone minerva-7b mellum2 "},
    {{{kFalconPunctuation, kGpt2, kThreeDigits}, false, false},
     " falcon "},
    {{{kDefaultPunctuation, kGpt2, "\\p{N}+", kThreeDigits}, false, false},
     " default  "},
    {{{"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", kCjk, kDigit}, false, false},
     " deepseek-coder "},
    {{{"[\\r\\n]", kDeepseekLetters, kDeepseekPunctuation, kFinalSpaces, kCjk, "\\p{N}+"}, false, false},
     " deepseek-llm "},
    {{{"\\p{N}{1,3}", kDeepseekV3Cjk, kDeepseekV3}, false, false},
     " deepseek-v3 hunyuan-dense joyai-llm "},
    {{{kTekken}, true, true},
     " tekken "},
    {{{kGpt4o}, false, false},
     " gpt-4o llama4 kanana2 minimax-m2 "},
    {{{kBailing}, false, false},
     " bailingmoe llada-moe "},
    {{{kSeedCoder}, false, false},
     " seed-coder "},
};

}  // namespace

const PreTokenizerTraits* find_pre_tokenizer(std::string_view name) {
  // No name has a space in it, so a hit between spaces is a whole name; "" hits the double space after "default".
  std::string wanted(1, ' ');
  wanted.append(name).append(1, ' ');
  if (name.find(' ') != std::string_view::npos) return nullptr;
  for (const Family& family : kFamilies)
    if (family.names.find(wanted) != std::string_view::npos) return &family.traits;
  return nullptr;
}

}  // namespace sluice::text

"""What counts as a citation, a regulatory keyword or a date in a narrative: one table, one row per shape."""

# ruff: noqa: E501 - a table is read by its columns
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """One shape. In `pattern` a space stands for one to three blanks, and ` ?` for at most three.

    Two finds are the same anchor when `scheme` and the text of the groups are the same, so that
    `GDPR Article 33` and `Art. 33 of the GDPR` are one. A row is only tried where one of its `words` (lower-case runs
    of letters and digits) or `marks` (any text, in the case that is searched) occurs. `cased` rows tell `SAR` from
    `sar`. No pattern may begin in the middle of a word, and each repetition is bounded, so that time stays linear.
    """

    name: str
    kind: str
    scheme: str
    pattern: str
    words: frozenset[str] = frozenset()
    marks: tuple[str, ...] = ()
    cased: bool = False


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DOMAINS = (
    "aml|bsa|kyc|cdd|edd|cft|ctf|ofac|sar|ctr|pep|fin|fatf|gdpr|privacy|priv|dpa|hipaa|phi|saas|soc|sox|pci|sec|pol|"
    "policy|risk|sanc|sanctions|fraud|infosec"
)
_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
MONTHS: dict[str, int] = {form: number for number, name in enumerate(_MONTH_NAMES, 1) for form in (name, name[:3])}
MONTHS["sept"] = 9

FRAGMENTS: dict[str, str] = {
    "<sub>": r"(?: ?\([a-z0-9]{1,4}\)){0,5}",
    "<domain>": f"(?:{_DOMAINS})",
    "<month>": "(?P<name>" + "|".join(sorted(MONTHS, key=len, reverse=True)) + ")",
    "<head>": "(?:Act|Policy|Directive|Regulations?|Rule|Guidelines|Standards)",
    "<no title>": (
        "(?!(?:The|This|That|These|Those|Our|Your|Their|Its|His|Her|Under|Per|Any|All|No|Every|Each|An|A|In|On|By|As|"
        r"If|When|Internal|Company|Corporate|Applicable|Relevant|Such|See|Violates|Violation|Breach|Following)\b)"
    ),
}
"""What stands for the `<names>` in the patterns: subsections such as `(a)(3)`, id prefixes, months, heads of titles."""


def _citation(
    name: str, pattern: str, words: str = "", *, scheme: str = "", marks: str = "", cased: bool = False
) -> Row:
    return Row(name, "citation", scheme or name, pattern, _words(words), tuple(marks.split()), cased)


CITATIONS: tuple[Row, ...] = (
    _citation("policy_id", r"(<domain>(?:[-_][a-z][a-z0-9]{0,9}){0,3}[-_][0-9]{1,5}[a-z]?)",
              _DOMAINS.replace("|", " "), scheme="id"),
    _citation("three_part_id", r"((?!TXN|ACC|REF|INV|CVE|CWE|ISO|SHA|UTF|FIN)[A-Z]{2,10}(?:-[A-Z]{2,10}){1,3}-[0-9]{2,5})",
              scheme="id", marks="-", cased=True),
    _citation("usc", r"([0-9]{1,2}) ?u\.? ?s\.? ?c\.?(?: ?(?:§{1,2}|sections?|sec\.))? ?([0-9]{1,5}[a-z]{0,2}(?:-[0-9]{1,3})?)<sub>",
              "usc c", marks="u.s.c"),
    _citation("cfr", r"([0-9]{1,2}) ?c\.? ?f\.? ?r\.?(?: ?(?:§{1,2}|part|parts|section))? ?([0-9]{1,4}(?:\.[0-9]{1,4})?)<sub>",
              "cfr", marks="c.f.r"),
    _citation("gdpr_article", r"(?:eu )?gdpr,? ?(?:article|articles|art\.?) ?([0-9]{1,2})<sub>", "gdpr", scheme="gdpr"),
    _citation("article_of_gdpr", r"(?:article|art\.?) ?([0-9]{1,2})<sub>,? (?:of )?(?:the )?(?:eu )?(?:gdpr|general data protection regulation)",
              "gdpr protection", scheme="gdpr"),
    _citation("article", r"(?:article|art\.) ?([0-9]{1,3})<sub>", "article art"),
    _citation("fatf_recommendation", r"fatf(?:'s)? ?(?:recommendation|rec\.?|r\.?) ?([0-9]{1,2})", "fatf", scheme="fatf"),
    _citation("recommendation_of_fatf", r"(?:recommendation|rec\.) ?([0-9]{1,2}) of (?:the )?fatf", "fatf", scheme="fatf"),
    _citation("nist_sp", r"(?:nist ?)?(?:sp|special publication)[\s-]?([0-9]{3,4}-[0-9]{1,3}[a-z]?)(?: ?(?:r|rev\.?) ?[0-9])?",
              "sp publication", scheme="nist"),
    _citation("attack_technique", r"(T1[0-9]{3}(?:\.[0-9]{3})?)", scheme="attack", marks="T1", cased=True),
    _citation("owasp_api", r"(API(?:10|[1-9])):(20[0-9]{2})", marks="API", scheme="owasp", cased=True),
    _citation("owasp_top_ten", r"(A(?:10|0[1-9])):(20[0-9]{2})", marks="A0 A1", scheme="owasp", cased=True),
    _citation("cve", r"cve-([0-9]{4}-[0-9]{4,7})", "cve"),
    _citation("cwe", r"cwe-([0-9]{1,5})", "cwe"),
    _citation("iso", r"iso(?:/iec)?[\s-]?([0-9]{4,5}(?:-[0-9]{1,2})?)(?::[0-9]{4})?", "iso", marks="iso"),
    _citation("pci_dss", r"pci[\s-]dss,? ?(?:v|version|requirement|req\.?)? ?([0-9]{1,2}(?:\.[0-9]{1,2}){0,3})", "pci"),
    _citation("soc_criterion", r"(CC[1-9]\.[0-9]{1,2})", marks="CC", scheme="soc", cased=True),
    _citation("eu_act", r"(?:directive|regulation) ?(?:\((?:eu|ec|eec|eu, euratom)\))? ?(?:no\.? ?)?([0-9]{2,4}/[0-9]{2,4})(?:/(?:eu|ec|eec))?",
              "directive regulation", scheme="eu"),
    _citation("amld", r"(?:([3-7])(?:th|rd)? ?amld|amld ?([3-7]))", "amld 3amld 4amld 5amld 6amld 4th 5th 6th amld4 amld5 amld6"),
    _citation("fincen_advisory", r"(fin-20[0-9]{2}-[a-z]{0,5}[0-9]{3})", "fin"),
    _citation("sox_section", r"(?:sox|sarbanes-oxley)(?: act)? ?(?:section|sec\.|§) ?([0-9]{3,4})<sub>", "sox sarbanes", scheme="sox"),
    _citation("hipaa_section", r"hipaa ?(?:section|sec\.|§)? ?([0-9]{3}\.[0-9]{3})<sub>", "hipaa", scheme="section"),
    _citation("section_sign", r"§{1,2} ?([0-9]{1,5}(?:\.[0-9]{1,5})?[a-z]?)<sub>", marks="§", scheme="section"),
    _citation("section", r"(?:section|sec\.) ([0-9]{3,5}(?:\.[0-9]{1,5})?)<sub>", "section sec"),
    _citation("title", r"(<no title>[A-Z][\w&']{0,30}(?:-\w{1,20})? (?:(?:[A-Z][\w&']{0,30}(?:-\w{1,20})?|of|and|for|on|to|the) ){0,6}<head>)",
              marks="Act Policy Directive Regulation Rule Guidelines Standards", cased=True),
)  # fmt: skip


def _keyword(name: str, pattern: str, words: str) -> Row:
    return Row(name, "keyword", name, pattern, _words(words))


def _acronym(name: str, letters: str) -> Row:
    return Row(f"{name}_acronym", "keyword", name, letters + "s?", marks=(letters,), cased=True)


KEYWORDS: tuple[Row, ...] = (
    _keyword("suspicious_activity_report", "suspicious activity reports?", "suspicious"),
    _acronym("suspicious_activity_report", "SAR"),
    _keyword("currency_transaction_report", "currency transaction report(?:s|ing)?", "currency"),
    _acronym("currency_transaction_report", "CTR"),
    _keyword("structuring", "structuring|structured (?:deposits?|payments?|transactions?)|smurfing", "structuring structured smurfing"),
    _keyword("money_laundering", r"money[\s-]launder(?:ing|er|ers)|anti-money laundering", "money"),
    _acronym("money_laundering", "AML"),
    _keyword("terrorist_financing", "terroris(?:t|m) financ(?:ing|e)|counter-terrorist financing", "terrorist terrorism"),
    _keyword("proliferation_financing", "proliferation financing", "proliferation"),
    _keyword("sanctions", "sanctions?|sanctioned", "sanction sanctions sanctioned"),
    _acronym("ofac", "OFAC"),
    _acronym("sdn_list", "SDN"),
    _keyword("politically_exposed_person", "politically exposed persons?", "politically"),
    _acronym("politically_exposed_person", "PEP"),
    _keyword("beneficial_owner", "beneficial owner(?:s|ship)?", "beneficial"),
    _keyword("know_your_customer", "know your customer", "know"),
    _acronym("know_your_customer", "KYC"),
    _keyword("customer_due_diligence", "customer due diligence", "customer"),
    _acronym("customer_due_diligence", "CDD"),
    _keyword("enhanced_due_diligence", "enhanced due diligence", "enhanced"),
    _acronym("enhanced_due_diligence", "EDD"),
    _keyword("reporting_threshold", "(?:reporting|record-keeping|recordkeeping) (?:threshold|requirement|obligation)s?",
             "reporting keeping recordkeeping"),
    _keyword("shell_company", "shell compan(?:y|ies)", "shell"),
    _keyword("high_risk_jurisdiction", r"high[\s-]risk (?:jurisdiction|countr)(?:y|ies|s)?", "high"),
    _acronym("fincen", "FinCEN"),
    _acronym("fatf", "FATF"),
    _acronym("bsa", "BSA"),
    _acronym("gdpr", "GDPR"),
    _keyword("personal_data", "personal data|personally identifiable information", "personal personally"),
    _keyword("data_subject", "data subjects?", "data"),
    _keyword("data_breach", "(?:personal )?data breach(?:es)?", "breach breaches"),
    _keyword("lawful_basis", "lawful bas(?:is|es)", "lawful"),
    _keyword("data_retention", "(?:data )?retention (?:period|limit|policy|requirement)s?", "retention"),
    _acronym("hipaa", "HIPAA"),
    _keyword("protected_health_information", "protected health information", "protected"),
    _acronym("protected_health_information", "PHI"),
    _keyword("minimum_necessary", "minimum necessary", "minimum"),
    _keyword("business_associate", "business associate(?:s| agreement)?", "associate associates"),
    _keyword("pci_dss", r"pci[\s-]dss", "pci"),
    _acronym("sox", "SOX"),
    _keyword("soc_2", "soc ?2", "soc soc2"),
    _acronym("ccpa", "CCPA"),
    _keyword("least_privilege", "least privilege", "least"),
    _keyword("encryption", "encryption (?:at rest|in transit)|encrypted (?:at rest|in transit)", "encryption encrypted"),
    _acronym("mfa", "MFA"),
)  # fmt: skip

DATES: tuple[Row, ...] = (
    Row("iso_date", "date", "date", r"(?P<y>[12][0-9]{3})-(?P<m>[01][0-9])-(?P<d>[0-3][0-9])(?=t[0-9]|(?!\w))", marks=("-",)),
    Row("day_month_year", "date", "date", r"(?P<d>[0-3]?[0-9])(?:st|nd|rd|th)? <month>\.?,? (?P<y>[12][0-9]{3})",
        frozenset(MONTHS)),
    Row("month_day_year", "date", "date", r"<month>\.? (?P<d>[0-3]?[0-9])(?:st|nd|rd|th)?,? (?P<y>[12][0-9]{3})",
        frozenset(MONTHS)),
)  # fmt: skip

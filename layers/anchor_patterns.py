"""What counts as a citation, a regulatory keyword or a date in a narrative: one table, one row per shape."""

# ruff: noqa: E501 - a table is read by its columns
from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase, digits


@dataclass(frozen=True, slots=True)
class Row:
    """One shape. In `pattern` a space stands for one to three blanks, and ` ?` for at most three.

    Two finds are the same anchor when `scheme` and the text of the groups are the same, so that
    `GDPR Article 33` and `Art. 33 of the GDPR` are one. A row is only tried near one of its `cues`: literal text that
    every match holds, at most `reach` characters after its beginning. A cue begins with a whole word, unless it ends in
    `*`, which stands for a cue that may stand inside one; where `after` is given, one of its characters stands right before
    the cue. `cased` rows tell `SAR` from `sar`; the others see small
    letters. Each repetition is bounded, so that time stays linear.
    """

    name: str
    kind: str
    scheme: str
    cues: tuple[str, ...]
    pattern: str
    reach: int = 0
    cased: bool = False
    after: str = ""


_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
MONTHS: dict[str, int] = {form: number for number, name in enumerate(_MONTH_NAMES, 1) for form in (name, name[:3])}
MONTHS["sept"] = 9

_DOMAINS = (
    "aml", "bsa", "kyc", "cdd", "edd", "cft", "ctf", "ofac", "sar", "ctr", "pep", "fatf", "gdpr", "privacy", "dpa",
    "hipaa", "phi", "saas", "soc", "sox", "pci", "sec", "pol", "policy", "risk", "sanctions", "fraud", "infosec",
)  # fmt: skip
_HEADS = ("Act", "Policy", "Directive", "Regulation", "Regulations", "Rule", "Guidelines", "Standards")

FRAGMENTS: dict[str, str] = {
    "<sub>": r"(?: ?\([a-z0-9]{1,4}\)){0,5}",
    "<domain>": f"(?:{'|'.join(_DOMAINS)})",
    "<month>": "(?P<name>" + "|".join(sorted(MONTHS, key=len, reverse=True)) + ")",
    "<head>": f"(?:{'|'.join(sorted(_HEADS, key=len, reverse=True))})",
    "<no title>": (
        "(?!(?:The|This|That|These|Those|Our|Your|Their|Its|His|Her|Under|Per|Any|All|No|Every|Each|An|A|In|On|By|As|"
        r"If|When|Internal|Company|Corporate|Applicable|Relevant|Such|See|Violates|Violation|Breach|Following)\b)"
    ),
    "<capitalised>": r"[A-Z][\w&']{0,30}(?:-\w{1,20})?",
}
"""What stands for the `<names>` in the patterns: subsections such as `(a)(3)`, id prefixes, months, parts of titles."""


def _citation(
    name: str,
    cues: tuple[str, ...],
    pattern: str,
    *,
    scheme: str = "",
    reach: int = 0,
    cased: bool = False,
    after: str = "",
) -> Row:
    return Row(name, "citation", scheme or name, cues, pattern, reach, cased, after)


CITATIONS: tuple[Row, ...] = (
    _citation("policy_id", _DOMAINS, r"(<domain>(?:[-_][a-z][a-z0-9]{0,9}){0,3}[-_][0-9]{1,5}[a-z]?)", scheme="id"),
    _citation("three_part_id", ("-*",), r"([A-Z]{2,10}(?<!TXN|ACC|REF|INV|CVE|CWE|ISO|SHA|UTF|FIN)(?:-[A-Z]{2,10}){1,3}-[0-9]{2,5})", scheme="id", reach=10, cased=True, after=ascii_uppercase),
    _citation("usc", ("u.s.c", "u. s. c", "usc*"), r"([0-9]{1,2}) ?u\.? ?s\.? ?c\.?(?: ?(?:§{1,2}|sections?|sec\.))? ?([0-9]{1,5}[a-z]{0,2}(?:-[0-9]{1,3})?)<sub>", reach=5),
    _citation("cfr", ("c.f.r", "cfr*"), r"([0-9]{1,2}) ?c\.?f\.?r\.?(?: ?(?:§{1,2}|parts?|section))? ?([0-9]{1,4}(?:\.[0-9]{1,4})?)<sub>", reach=5),
    _citation("gdpr_article", ("gdpr",), r"gdpr,? ?(?:articles?|art\.?) ?([0-9]{1,2})<sub>", scheme="gdpr"),
    _citation("article_of_gdpr", ("article", "art"), r"(?:article|art\.?) ?([0-9]{1,2})<sub>,? (?:of )?(?:the )?(?:eu )?(?:gdpr|general data protection regulation)", scheme="gdpr"),
    _citation("article", ("article", "art."), r"(?:article|art\.) ?([0-9]{1,3})<sub>"),
    _citation("fatf_recommendation", ("fatf",), r"fatf(?:'s)? ?(?:recommendation|rec\.?|r\.?) ?([0-9]{1,2})", scheme="fatf"),
    _citation("recommendation_of_fatf", ("recommendation", "rec."), r"(?:recommendation|rec\.) ?([0-9]{1,2}) of (?:the )?fatf", scheme="fatf"),
    _citation("nist_sp", ("nist sp", "nist special", "sp "), r"(?:nist )?(?:sp|special publication)[\s-]?([0-9]{3,4}-[0-9]{1,3}[a-z]?)(?: ?(?:r|rev\.?) ?[0-9])?", scheme="nist", reach=7),
    _citation("attack_technique", ("T1*",), r"(T1[0-9]{3}(?:\.[0-9]{3})?)", scheme="attack", cased=True),
    _citation("owasp_api", ("API*",), r"(API(?:10|[1-9])):(20[0-9]{2})", scheme="owasp", cased=True),
    _citation("owasp_top_ten", ("A0*", "A1*"), r"(A(?:10|0[1-9])):(20[0-9]{2})", scheme="owasp", cased=True),
    _citation("cve", ("cve",), r"cve-([0-9]{4}-[0-9]{4,7})"),
    _citation("cwe", ("cwe",), r"cwe-([0-9]{1,5})"),
    _citation("iso", ("iso*",), r"iso(?:/iec)?[\s-]?([0-9]{4,5}(?:-[0-9]{1,2})?)(?::[0-9]{4})?"),
    _citation("pci_dss_requirement", ("pci",), r"pci[\s-]dss,? ?(?:version |v|requirement |req\.? ?)?([0-9]{1,2}(?:\.[0-9]{1,2}){0,3})", scheme="pci"),
    _citation("soc_criterion", ("CC*",), r"(CC[1-9]\.[0-9]{1,2})", scheme="soc", cased=True),
    _citation("eu_act", ("directive", "regulation"), r"(?:directive|regulation) ?(?:\((?:eu|ec|eec)\))? ?(?:no\.? )?([0-9]{2,4}/[0-9]{2,4})(?:/(?:eu|ec|eec))?", scheme="eu"),
    _citation("amld", ("amld*",), r"(?:([3-7])(?:th|rd)? ?amld|amld ?([3-7]))", reach=6),
    _citation("fincen_advisory", ("fin-20",), r"(fin-20[0-9]{2}-[a-z]{0,5}[0-9]{3})"),
    _citation("sox_section", ("sox", "sarbanes-oxley"), r"(?:sox|sarbanes-oxley)(?: act)? ?(?:section|sec\.|§) ?([0-9]{3,4})<sub>", scheme="sox"),
    _citation("hipaa_section", ("hipaa",), r"hipaa ?(?:section|sec\.|§)? ?([0-9]{3}\.[0-9]{3})<sub>", scheme="section"),
    _citation("section_sign", ("§*",), r"§{1,2} ?([0-9]{1,5}(?:\.[0-9]{1,5})?[a-z]?)<sub>", scheme="section"),
    _citation("section", ("section ", "sec. "), r"(?:section|sec\.) ([0-9]{3,5}(?:\.[0-9]{1,5})?)<sub>"),
    _citation("title", _HEADS, r"(<no title><capitalised> (?:(?:<capitalised>|of|and|for|on|to|the) ){0,6}<head>)", reach=160, cased=True),
)  # fmt: skip


def _keyword(name: str, cues: tuple[str, ...], pattern: str) -> Row:
    return Row(name, "keyword", name, cues, pattern)


def _acronym(name: str, letters: str) -> Row:
    return Row(f"{name}_acronym", "keyword", name, (letters, letters + "s"), letters + "s?", 0, True)


KEYWORDS: tuple[Row, ...] = (
    _keyword("suspicious_activity_report", ("suspicious activity",), r"suspicious activity reports?"),
    _acronym("suspicious_activity_report", "SAR"),
    _keyword("currency_transaction_report", ("currency transaction",), r"currency transaction report(?:s|ing)?"),
    _acronym("currency_transaction_report", "CTR"),
    _keyword("structuring", ("structuring", "structured", "smurfing"), r"structuring|structured (?:deposits?|payments?|transactions?)|smurfing"),
    _keyword("money_laundering", ("money",), r"money[\s-]launder(?:ing|ers?)"),
    _acronym("money_laundering", "AML"),
    _keyword("terrorist_financing", ("terrorist", "terrorism"), r"terroris[tm] financ(?:ing|e)"),
    _keyword("proliferation_financing", ("proliferation",), r"proliferation financing"),
    _keyword("sanctions", ("sanction", "sanctions", "sanctioned"), r"sanction(?:s|ed)?"),
    _acronym("ofac", "OFAC"),
    _acronym("sdn_list", "SDN"),
    _keyword("politically_exposed_person", ("politically",), r"politically exposed (?:persons?|people)"),
    _acronym("politically_exposed_person", "PEP"),
    _keyword("beneficial_owner", ("beneficial",), r"beneficial owner(?:s|ship)?"),
    _keyword("know_your_customer", ("know your",), r"know your customer"),
    _acronym("know_your_customer", "KYC"),
    _keyword("customer_due_diligence", ("customer due",), r"customer due diligence"),
    _acronym("customer_due_diligence", "CDD"),
    _keyword("enhanced_due_diligence", ("enhanced due",), r"enhanced due diligence"),
    _acronym("enhanced_due_diligence", "EDD"),
    _keyword("reporting_threshold", ("reporting", "recordkeeping"), r"(?:reporting|recordkeeping) (?:threshold|requirement|obligation)s?"),
    _keyword("shell_company", ("shell",), r"shell compan(?:y|ies)"),
    _keyword("high_risk_jurisdiction", ("high-risk", "high risk"), r"high[\s-]risk (?:jurisdictions?|countr(?:y|ies))"),
    _acronym("fincen", "FinCEN"),
    _acronym("fatf", "FATF"),
    _acronym("bsa", "BSA"),
    _acronym("gdpr", "GDPR"),
    _keyword("personal_data", ("personal", "personally"), r"personal data|personally identifiable information"),
    _keyword("data_subject", ("data subject", "data subjects"), r"data subjects?"),
    _keyword("data_breach", ("data breach", "data breaches"), r"data breach(?:es)?"),
    _keyword("lawful_basis", ("lawful",), r"lawful bas[ie]s"),
    _keyword("data_retention", ("retention",), r"retention (?:period|limit|policy|requirement)s?"),
    _acronym("hipaa", "HIPAA"),
    _keyword("protected_health_information", ("protected health",), r"protected health information"),
    _acronym("protected_health_information", "PHI"),
    _keyword("minimum_necessary", ("minimum necessary",), r"minimum necessary"),
    _keyword("business_associate", ("business associate", "business associates"), r"business associates?"),
    _keyword("pci_dss", ("pci",), r"pci[\s-]dss"),
    _acronym("sox", "SOX"),
    _keyword("soc_2", ("soc 2", "soc2"), r"soc ?2"),
    _acronym("ccpa", "CCPA"),
    _keyword("least_privilege", ("least privilege",), r"least privilege"),
    _keyword("encryption", ("encryption", "encrypted"), r"encrypt(?:ion|ed) (?:at rest|in transit)"),
    _acronym("mfa", "MFA"),
)  # fmt: skip

DATES: tuple[Row, ...] = (
    Row("iso_date", "date", "date", ("-*",), r"(?P<y>[12][0-9]{3})-(?P<m>[01][0-9])-(?P<d>[0-3][0-9])(?:t[0-9:.]{2,16}(?:z|[+-][0-9:]{2,5})?)?", 4, after=digits),
    Row("day_month_year", "date", "date", tuple(MONTHS), r"(?P<d>[0-3]?[0-9])(?:st|nd|rd|th)? <month>\.?,? (?P<y>[12][0-9]{3})", 7),
    Row("month_day_year", "date", "date", tuple(MONTHS), r"<month>\.? (?P<d>[0-3]?[0-9])(?:st|nd|rd|th)?,? (?P<y>[12][0-9]{3})"),
)  # fmt: skip

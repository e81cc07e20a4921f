"""Each row of the pattern table: what it finds, and what it leaves alone."""

# ruff: noqa: E501 - a table is read by its columns
import re

import pytest

from layers.anchor_patterns import CITATIONS, DATES, KEYWORDS, Row
from layers.anchor_table import compile_row
from layers.anchors import find_anchors, find_claims

# By row: texts of which the row must find exactly the part between the brackets, and texts in which it finds nothing.
CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "policy_id": (
        ("see [AML-BSA-001].", "([aml-bsa-001])", "[HIPAA-7]", "[gdpr_ret_12] applies", "per [KYC-CDD-3b]"),
        ("x-aml-001", "amlbsa", "AML-BSA", "risk-based", "1aml-1", "aml-001x2"),
    ),
    "three_part_id": (
        ("under [ACME-OPS-014]", "[XX-YY-ZZ-12]"),
        ("TXN-ABC-001", "acme-ops-014", "CVE-AB-2021", "A-B-1", "ACME-014", "ACME-OPS-1"),
    ),
    "usc": (
        ("[31 U.S.C. § 5324]", "[31 USC 5324(a)(3)]", "[18 u.s.c. section 1956]", "[31 U.S.C. §§ 5318]", "[12 USC 1829b]"),
        ("31 USC students", "U.S.C. § 5324", "131 USCx 4", "usc"),
    ),
    "cfr": (
        ("[31 CFR 1010.311]", "[45 C.F.R. § 164.312(a)(1)]", "[31 CFR Part 1020]", "[31cfr1010.311]"),
        ("CFR 1010", "31 CFR rules", "the cfr"),
    ),
    "gdpr_article": (("[GDPR Article 33]", "[GDPR, Art. 6(1)(f)]", "[gdpr art 5]"), ("GDPR applies", "GDPR 2016", "GDPR article")),
    "article_of_gdpr": (
        ("[Article 33 of the GDPR]", "[Art. 6(1) GDPR]", "[article 5 of the general data protection regulation]"),
        ("Article 33", "Article GDPR", "particle 3 of the GDPR"),
    ),
    "article": (("[Article 12]", "[Art. 9(2)]", "[article 101]"), ("articles", "article about 5", "smart. 5", "Art 5")),
    "fatf_recommendation": (("[FATF Recommendation 16]", "[FATF Rec. 10]", "[FATF R.16]"), ("FATF guidance", "FATF recommendation",)),
    "recommendation_of_fatf": (("[Recommendation 16 of the FATF]", "[rec. 10 of FATF]"), ("Recommendation 16", "our recommendation of FATF")),
    "nist_sp": (
        ("[NIST SP 800-63B]", "[SP 800-53 Rev. 5]", "[NIST Special Publication 800-171]"),
        ("NIST CSF", "sp 12", "clasp 800-63", "SP 80-1"),
    ),
    "attack_technique": (("[T1078]", "[T1566.002] used"), ("t1078", "AT1078", "T10785", "T2078", "T1078x")),
    "owasp_api": (("[API1:2023]", "[API10:2019]"), ("api1:2023", "API11:2023", "API1", "API1:1999")),
    "owasp_top_ten": (("[A01:2021]", "[A10:2017]"), ("A11:2021", "A1:2021", "a01:2021", "BA01:2021")),
    "cve": (("[CVE-2021-44228]",), ("CVE-21-1", "cve", "CVE-2021")),
    "cwe": (("[CWE-79]",), ("cwe", "CWE-", "CWE79")),
    "iso": (("[ISO 27001]", "[ISO/IEC 27001:2022]", "[ISO-8601]", "[iso27701]"), ("isolated 27001", "ISO 12", "miso 27001")),
    "pci_dss_requirement": (("[PCI DSS 3.4]", "[PCI-DSS requirement 10.2.1]", "[PCI DSS v4.0]"), ("PCI DSS compliant", "PCI 3", "pci-dss v")),
    "soc_criterion": (("[CC6.1]", "[CC9.12]"), ("cc6.1", "CC6", "ACC6.1", "CC0.1")),
    "eu_act": (
        ("[Directive (EU) 2015/849]", "[Regulation (EU) 2016/679]", "[directive 95/46/EC]", "[Regulation (EU) No 575/2013]"),
        ("directive 2015", "Regulation on data", "deregulation 2016/679"),
    ),
    "amld": (("[5AMLD]", "[6th AMLD]", "[AMLD5]"), ("AMLD", "9AMLD", "2 AMLD")),
    "fincen_advisory": (("[FIN-2014-A007]", "[fin-2020-alert001]"), ("fin-2014", "FIN-1999-A007", "dolphin-2014-a007")),
    "sox_section": (("[SOX Section 404]", "[Sarbanes-Oxley Act § 302]"), ("SOX 404", "SOX section", "socks section 404")),
    "hipaa_section": (("[HIPAA § 164.312]", "[HIPAA 164.502(b)]"), ("HIPAA rules", "HIPAA 164", "hipaa section")),
    "section_sign": (("[§ 164.312]", "[§§ 5318]", "[§5324(a)]"), ("§", "§ five", "§ x12")),
    "section": (("[Section 314(b)]", "[sec. 326]", "[section 1010.311]"), ("Section 4", "section", "intersection 314", "section12")),
    "title": (
        ("the [Bank Secrecy Act] says", "[Wire Transfer Policy]", "[Prevention of Money Laundering Act]", "our [Anti-Fraud Policy]"),
        ("the Policy", "bank secrecy act", "The Act", "An Action", "Acme Policyholder"),
    ),
    "suspicious_activity_report": (("a [suspicious activity report]", "[Suspicious Activity Reports]"), ("suspicious activity", "unsuspicious activity report")),
    "suspicious_activity_report_acronym": (("filed a [SAR]", "[SARs]"), ("sar", "SARA", "CAESAR")),
    "currency_transaction_report": (("[currency transaction report]", "[Currency Transaction Reporting]"), ("currency transaction",)),
    "currency_transaction_report_acronym": (("a [CTR]",), ("ctr", "CTRL", "ECTR")),
    "structuring": (("[structuring]", "[structured deposits]", "[Smurfing]"), ("restructuring", "structured data", "structure")),
    "money_laundering": (("[money laundering]", "[money-laundering]", "[money launderers]"), ("laundering", "money", "money laundry")),
    "money_laundering_acronym": (("[AML] rules",), ("aml", "YAML", "AMLD")),
    "terrorist_financing": (("[terrorist financing]", "[terrorism financing]"), ("terrorist", "financing")),
    "proliferation_financing": (("[proliferation financing]",), ("proliferation",)),
    "sanctions": (("[sanctions] list", "[sanctioned]", "a [sanction]"), ("sanctionsX", "sanctioning", "unsanctioned")),
    "ofac_acronym": (("[OFAC]",), ("ofac", "OFACX")),
    "sdn_list_acronym": (("[SDN] list",), ("sdn", "SDNA")),
    "politically_exposed_person": (("[politically exposed person]", "[politically exposed people]"), ("politically exposed", "exposed person")),
    "politically_exposed_person_acronym": (("a [PEP]", "[PEPs]"), ("pep", "PEPPER")),
    "beneficial_owner": (("[beneficial owner]", "[beneficial ownership]"), ("beneficial", "owner", "beneficial owned")),
    "know_your_customer": (("[Know Your Customer]",), ("know your limits", "customer")),
    "know_your_customer_acronym": (("[KYC] checks",), ("kyc", "KYCX")),
    "customer_due_diligence": (("[customer due diligence]",), ("due diligence", "customer due")),
    "customer_due_diligence_acronym": (("[CDD]",), ("cdd", "CDDA")),
    "enhanced_due_diligence": (("[enhanced due diligence]",), ("enhanced", "due diligence")),
    "enhanced_due_diligence_acronym": (("[EDD]",), ("edd", "TEDD")),
    "reporting_threshold": (("[reporting threshold]", "[recordkeeping requirements]"), ("reporting", "threshold", "reporting line")),
    "shell_company": (("[shell company]", "[shell companies]"), ("shell", "shell script")),
    "high_risk_jurisdiction": (("[high-risk jurisdiction]", "[high risk countries]"), ("high risk", "high-risk merchant")),
    "fincen_acronym": (("[FinCEN]",), ("fincen", "FINCEN")),
    "fatf_acronym": (("[FATF]",), ("fatf", "FATFX")),
    "bsa_acronym": (("[BSA]",), ("bsa", "BSAB")),
    "gdpr_acronym": (("[GDPR]",), ("gdpr", "GDPRX")),
    "personal_data": (("[personal data]", "[personally identifiable information]"), ("personal", "personal database")),
    "data_subject": (("[data subject]", "[data subjects]"), ("data", "subject", "metadata subject")),
    "data_breach": (("[data breach]", "[data breaches]"), ("breach", "data")),
    "lawful_basis": (("[lawful basis]", "[lawful bases]"), ("lawful", "unlawful basis")),
    "data_retention": (("[retention period]", "[retention limits]"), ("retention", "customer retention")),
    "hipaa_acronym": (("[HIPAA]",), ("hipaa", "HIPAAX")),
    "protected_health_information": (("[protected health information]",), ("protected health", "health information")),
    "protected_health_information_acronym": (("[PHI]",), ("phi", "SOPHIA", "PHIL")),
    "minimum_necessary": (("[minimum necessary]",), ("minimum", "necessary")),
    "business_associate": (("[business associate]", "[business associates]"), ("associate", "business")),
    "pci_dss": (("[PCI DSS]", "[pci-dss]"), ("PCI", "DSS")),
    "sox_acronym": (("[SOX]",), ("sox", "SOXX")),
    "soc_2": (("[SOC 2]", "[SOC2]"), ("soc", "SOC 3", "SOC 22")),
    "ccpa_acronym": (("[CCPA]",), ("ccpa", "CCPAX")),
    "least_privilege": (("[least privilege]",), ("least", "privilege")),
    "encryption": (("[encryption at rest]", "[encrypted in transit]"), ("encryption", "encrypted")),
    "mfa_acronym": (("[MFA]",), ("mfa", "MFAX")),
    "iso_date": (("on [2023-01-15].", "[2023-01-15T10:00:00Z]"), ("2023-13-15", "2023-01-45", "12023-01-15", "2023-01-155")),
    "day_month_year": (("[15 January 2023]", "[1st Mar. 2024]"), ("15 Janus 2023", "January 2023", "99 May 2023")),
    "month_day_year": (("[January 15, 2023]", "[Sept. 3rd 2024]"), ("January 2023", "Mayor 15, 2023", "May 15")),
}  # fmt: skip

ROWS = {row.name: row for row in CITATIONS + KEYWORDS + DATES}


def found_by(row: Row, text: str) -> list[str]:
    """What the row alone finds, by way of the public search."""
    tokens = find_anchors(text)
    return [token.text for token in tokens if token.kind == row.kind and token.key.startswith(row.scheme)]


def test_every_row_has_true_and_false_cases():
    assert set(CASES) == set(ROWS)
    assert all(true and false for true, false in CASES.values())


@pytest.mark.parametrize("name", CASES)
def test_a_row_finds_its_true_cases(name):
    row = ROWS[name]
    for marked in CASES[name][0]:
        expected = re.search(r"\[(.*)\]", marked).group(1)
        text = marked.replace("[" + expected + "]", expected)
        assert expected in found_by(row, text), text


@pytest.mark.parametrize("name", CASES)
def test_a_row_leaves_its_false_cases_alone(name):
    row = ROWS[name]
    pattern = compile_row(row)
    for text in CASES[name][1]:
        own = [
            token
            for token in found_by(row, text)
            if pattern.fullmatch(token if row.cased else token.lower()) is not None
        ]
        assert own == [], text


@pytest.mark.parametrize("name", CASES)
def test_a_row_finds_its_true_cases_inside_prose_and_after_any_bracket(name):
    for marked in CASES[name][0]:
        expected = re.search(r"\[(.*)\]", marked).group(1)
        for text in (f"Because of ({expected}), we report.", f'as "{expected}" says', f"x\n{expected}\ny"):
            assert expected in found_by(ROWS[name], text), text


def test_the_issue_of_shapes_in_one_sentence():
    text = (
        "AML-BSA-001, 31 U.S.C. § 5324, 31 CFR 1010.311, GDPR Article 33, FATF Recommendation 16, NIST SP 800-63B, "
        "T1078 and API1:2023"
    )
    assert [token.text for token in find_claims(text)] == re.split(", | and ", text)

"""No message shows a password or another secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sizewright.errors import InputError, NotEnoughDataError
from sizewright.redaction import hide_in_words, may_be_secret, redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://alice:s3cret@host:9090/x", "http://alice:***@host:9090/x"),
        ("at http://alice:s3@cret@host: no", "at http://alice:***@host: no"),
        ("http://alice:s3/cr#et@host", "http://alice:***@host"),
        ("postgresql+psycopg://u:1234@h:5432/d", "postgresql+psycopg://u:***@h:5432/d"),
        (
            "postgresql://h/d?user=u&password=s3cret&sslmode=require",
            "postgresql://h/d?user=u&password=***&sslmode=require",
        ),
        ("https://host/api?access_token=abc", "https://host/api?access_token=***"),
        ("http://host:9090/user@example", "http://host:9090/user@example"),
        ("http://host:9090 of a@b.c", "http://host:9090 of a@b.c"),
        ("sqlite:///models.db", "sqlite:///models.db"),
        ("s3cret@host, but no URL", "s3cret@host, but no URL"),
        ("train --api-key=abc --epochs=3", "train --api-key=*** --epochs=3"),
        ("train --db-token 'a b' --epochs 3", "train --db-token '***' --epochs 3"),
        ("['train', '--db-token', 'a b', '-v']", "['train', '--db-token', '***', '-v']"),
        ("API_TOKEN=abc123 train", "API_TOKEN=*** train"),
        ("curl -H 'Authorization: Bearer abc123' x", "curl -H 'Authorization: Bearer ***' x"),
        ('{"password": "abc", "mode": "fast"}', '{"password": "***", "mode": "fast"}'),
        ("it said AKIAIOSFODNN7EXAMPLE, and ended", "it said ***, and ended"),
        ("train --password=$PASSWORD --token-file /x --secret --epochs=3 --max-tokens=512 --bypass=1 --passes 3",) * 2,
        ("create secret generic ctr --from-literal=DB_PASSWORD=...",) * 2,
        ("the tokens of --executor are many; pass --store FILE",) * 2,
        ("curl -H 'X-Api-Key: abc'", "curl -H 'X-Api-Key: ***'"),
        ("Server=h;Pwd=abc;Timeout=3", "Server=h;Pwd=***;Timeout=3"),
        ("AccountName=x;AccountKey=abc==;", "AccountName=x;AccountKey=***;"),
        ("/x?access_key=abc&X-Amz-Signature=def&n=3", "/x?access_key=***&X-Amz-Signature=***&n=3"),
        ("t --password=-abc", "t --password=***"),
        ("password: abc\nmode: fast", "password: ***\nmode: fast"),
        ('{"token": 12345678}', '{"token": ***}'),
        ("a\n-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\nb", "a\n***\nb"),
        ("a bearer of news; session=3 of 5; --pass 2 --pin-memory true --tokens-per-sample 512 --auth none",) * 2,
        ('sh -c "curl -fs -u me:pw http://x"', 'sh -c "curl -fs -u me:*** http://x"'),
        ("docker run -u me:staff x; curl --user $USER:$PASS x",) * 2,
        ("no such key: cpus; the Key: value; epochs = 3; name: x, value: 3",) * 2,
        ("t --max-tokens 131072 --license MIT --key user_id --cert /etc/x.pem auth=basic session=abc tokens=4096",) * 2,
        ("PWD=/home/x GOOGLE_APPLICATION_CREDENTIALS=/x/y.json sk-learn-pipeline-version-1 ssh://git@host/x",) * 2,
        ("TOKENIZERS_PARALLELISM=false token_type=bearer --token-dropout 0.1 --primary-key item_id",) * 2,
        ("write the URL as https://USER:PASSWORD@HOST",) * 2,
        ("/data/hf_datasets_criteo_kaggle/day.tsv sk-learn-pipelines-version-b",) * 2,
        ("the session: it has ended; name: is missing; its token: none",) * 2,
        ("at 12:30@office, 2026-01-01T10:30@x, step:3@worker0, a:b@c, pkg@1.2, npm:react2@17.0.1 mailto:bob7@x.org",)
        * 2,
        ("nginx:1.21@sha256:abc1 git@github.com:o/r.git http://host:9090/user2@example http://h:90 or bob@10.0.0.1:22",)
        * 2,
        ("docker run -p 8080:80 x; ssh -p 22 h; train -p 8080 -a 3; mysql -p db --port 3; mysql-connector -v",) * 2,
        ('--password ${PASS} --token "$TOKEN" --password $(cat /run/x) u:$PASS@prom:9090 TOKEN=$T; curl -u me:$PASS',)
        * 2,
        ("u:secret@prom:9090 //u:secret@prom", "u:***@prom:9090 //u:***@prom"),
        ("sshpass -p hunter22 ssh -p 2222 host", "sshpass -p *** ssh -p 2222 host"),
        ("imagePullSecrets:\n- name: regcred\nkeys:\n- user_id\n- cat_12",) * 2,
        ("unknown keys: [worker.cpu, workers[0].cpu]; sort_keys=('a', 'item_2'), hash_keys: [sha256sum]",) * 2,
        ("sshpass: Permission denied; N_PASSES=3 --passes 3 --max-tokens=4096 MAXTOKENS=4096 lowpass=0.5hz bypass=a1",)
        * 2,
        ("a passthrough=abc123; PASSES=mem2reg,sroa; KEYBOARD=us2 MONKEY=banana2 COMPASS=n0rth1 encompass=v1beta1",)
        * 2,
        ('{"api_keys": ["a1b2", "c3"], "keys": ["a"]}', '{"api_keys": ["***", "***"], "keys": ["a"]}'),
        ("{'passwords': ['a', \"b\"], 'n': [3]}", "{'passwords': ['***', \"***\"], 'n': [3]}"),
        ("API_KEYS=[a, b] passwords=('x', 'y') x", "API_KEYS=[***, ***] passwords=('***', '***') x"),
        ("api_keys:\n  - 'a b'\n  - c\nmode: fast", "api_keys:\n  - '***'\n  - ***\nmode: fast"),
        (
            "https://abc12345:x@h https://alice:x@h https://abc12345:@h",
            "https://***:***@h https://alice:***@h https://***:***@h",
        ),
        ("curl -u 'me:a b' x; docker run -u me:staff x", "curl -u 'me:***' x; docker run -u me:staff x"),
    ],
)
def test_passwords_are_replaced_and_nothing_else(text: str, expected: str) -> None:
    assert redacted(text) == expected


SECRET = "h0nter2secret"


@pytest.mark.parametrize(
    "text",
    [
        f"git clone https://{SECRET}@git.example/x", f"--openai-key {SECRET}", f"-H 'PRIVATE-TOKEN: {SECRET}'",
        f"--env=API_KEY={SECRET}", f"-Dtoken={SECRET}", f"--set=db.password={SECRET}", f"X-Auth-Token: {SECRET}",
        f"x-amz-security-token: {SECRET}", f"token: {SECRET}", f"PASSWORD = {SECRET}", rf"https:\/\/u:{SECRET}@h",
        f"{{'name': 'DB_PASSWORD', 'value': '{SECRET}'}}", f"- name: DB_PASSWORD\n  value: {SECRET}",
        f"https://hooks.slack.com/services/T0/B0/{SECRET}", f"dckr_pat_{SECRET}", f"sk_live_{SECRET}", f"ya29.{SECRET}",
        f"u:{SECRET}@prom:9090", f"//u:{SECRET}@prom", f"u:p/{SECRET}@prom",
        f"http://u:12/{SECRET}@127.0.0.1:1", f"http://u:a {SECRET}@127.0.0.1:1", f"http%3A%2F%2Fu%3A{SECRET}%40h",
        f"mysql -p{SECRET} db", f"mysqldump -uroot -p'a {SECRET}'", f"sshpass -p {SECRET}", f"redis-cli -a {SECRET}",
        f"docker login -u x -p {SECRET}", f"/usr/bin/mongo -p {SECRET}", f"sqlcmd -P {SECRET}", f"ldapadd -w {SECRET}",
        f"['sshpass', '-p', '{SECRET}']", f'curl "http://x?a=1&b=2" -u me:{SECRET}', f"curl \\\n -su me:{SECRET}",
        f'curl -u "me:a {SECRET}"', f"PIN={SECRET}", f"HMAC={SECRET}", f"SEED_PHRASE={SECRET}", f"MNEMONIC={SECRET}",
        f'SECRET="a \\"{SECRET}"', f'SECRET="a {SECRET}', f"--password $x/{SECRET}", f"--password -{SECRET}",
        f"--password=$PASS-{SECRET}", f'{{\\"password\\": \\"a {SECRET}\\"}}', f"opts=a,password={SECRET}",
        f"--env=A=1,API_KEY={SECRET}", f"password=don't{SECRET}", f'"--db-token",\n  "a {SECRET}"',
        f"sk-ant-api03-{SECRET}{SECRET}", f"SG.{SECRET}{SECRET}.{SECRET}",
        f"--api-keys={SECRET}", f"--dbpass={SECRET}", f"--authtoken {SECRET}", f"SSHPASS={SECRET} ssh",
        f"dbpw: {SECRET}",
        f'{{"api_keys": ["{SECRET}"]}}', f"api_keys:\n- x\n- {SECRET}\n", f"awscreds={SECRET}",
        f"https://{SECRET}:x-oauth-basic@github.com/o/r", f"https://{SECRET}:@github.com/o/r",
        f"https%3A%2F%2F{SECRET}%3Ax-oauth-basic%40github.com",
        f"pypi-AgEIcHlwaS5vcmcC{SECRET}",
    ],
)  # fmt: skip
def test_secrets_of_every_form_are_hidden(text: str) -> None:
    assert SECRET not in redacted(text)


def test_token_of_40_hex_digits_before_a_filler_is_hidden() -> None:
    token = 5 * "0a1b2c3d"
    for password in ("x-oauth-basic", "x", "", "other"):
        assert redacted(f"https://{token}:{password}@github.com/o/r") == "https://***:***@github.com/o/r"


def test_short_number_under_a_secret_name_is_hidden() -> None:
    assert redacted("PIN=1234") == "PIN=***"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train|--password=a b", "train|--password=<hidden>"),
        ("train|--env=API_KEY=x1 y", "train|--env=API_KEY=<hidden>"),
        ("env|TOKEN=a b", "env|TOKEN=<hidden>"),
        ("train|--password|$ecret1!", "train|--password|<hidden>"),
        ("train|--password|-hunter22", "train|--password|<hidden>"),
        ("train|--password=$A$B", "train|--password=<hidden>"),
        ("mysql|-pa b|db", "mysql|-p<hidden>|db"),
        ("/bin/sshpass|-p|a b|ssh|-p|22", "/bin/sshpass|-p|<hidden>|ssh|-p|22"),
        ("redis-cli|-a|a b", "redis-cli|-a|<hidden>"),
        ("docker|login|-p|a b", "docker|login|-p|<hidden>"),
        ("curl|-su|me:a b", "curl|-su|me:<hidden>"),
        ("sh|-c|mysql -phunter22", "sh|-c|mysql -p<hidden>"),
        ("sh|-c|API_TOKEN=$T train",) * 2,
        ("train|--password|$PASS|--token=${TOKEN}|--secret|--epochs=3|-p|8080",) * 2,
        ("docker|run|-p|80:80",) * 2,
    ],
)
def test_secret_in_a_word_is_hidden_to_its_end(words: str, expected: str) -> None:
    assert list(hide_in_words(words.split("|"))) == expected.split("|")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "part",
    [
        "curl ", "curl -u a", "curl -u ", "mysql -p", "docker login ", "ldap", "://a:", "//u:", "a:a,", "u:a1,", "a:1@",
        "http://u:1/a ", "http://u:a b ", "http%3A%2F%2Fu%3A", "a=", 'password="', "password='\\", "key:", "token:,",
        "token=/a/", "token=${", "token=$(cat ", "--token ", "--token --a=", "token 'a \"b ", "\\", '\\"', '"a":',
        "name: x ", "token   :   ", "glpat-", "eyJaaaaaaaa-", "crypt", "sk-ant-", "bearer ", "authorization ",
        "api_keys: [", "keys: [a, keys:[", "keys=[a,", "keys:\n- ", "keys:\n- a", "keys: ['a", "api_keys=['a', ", "a1b",
        "keys=a1", "https%3A%2F%2Fa",
        "-----BEGIN ", "https://aaaaaaa1", "\n", "-",
    ],
)  # fmt: skip
def test_time_is_linear_in_the_length_of_the_text(part: str) -> None:
    """A quadratic pattern would take many minutes for a megabyte."""
    redacted(part * (1_000_000 // len(part)))


@pytest.mark.parametrize(
    "name",
    ["OPENAI_KEY", "FERNET_KEY", "SESSION_KEY", "S3_KEY", "PRIVKEY", "OTP", "TOKEN_VALUE", "TOKEN1", "TOKEN_PROD"],
)
def test_variables_that_are_named_as_secrets_are_ones(name: str) -> None:
    assert may_be_secret(name, SECRET)


def test_the_user_of_curl_loses_the_password() -> None:
    assert list(hide_in_words(["/usr/bin/curl", "-u", "me:pw", "x"])) == ["/usr/bin/curl", "-u", "me:<hidden>", "x"]
    plain = ["docker", "run", "-u", "me:staff"], ["curl", "-u", "$USER:$PASS"]
    assert [list(hide_in_words(args)) for args in plain] == [*plain]


@given(
    st.text(st.characters(codec="ascii", exclude_characters=" \t\n\r\x0b\x0c/?#"), min_size=1)
    .map(str.strip)
    .filter(bool)
)
def test_no_password_of_an_authority_is_shown(password: str) -> None:
    if password.split() == [password]:
        assert redacted(f"no http://alice:{password}@host/x.") == "no http://alice:***@host/x."


def test_errors_show_no_password_in_message_or_remedy() -> None:
    error = InputError("No http://u:pw@h.", "Start http://u:pw@h.")
    assert (str(error), error.args) == ("No http://u:***@h. Start http://u:***@h.", ("No http://u:***@h.",))
    assert NotEnoughDataError("At http://u:pw@h there are none.", 2).message == "At http://u:***@h there are none."


SECRET_NAMES = (
    "DB_PASSWORD", "DB_PASS", "PGPASSWORD", "MYSQL_PWD", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID",
    "AWS_SESSION_TOKEN", "HF_TOKEN", "GITHUB_PAT", "GITLAB_TOKEN", "WANDB_API_KEY", "WANDB_KEY", "OPENAI_APIKEY",
    "SLACK_WEBHOOK", "SENTRY_DSN", "DATABASE_URL", "REDIS_URL", "JWT", "SESSION_COOKIE", "SSH_KEY", "SSH_PRIVATE_KEY",
    "ENCRYPTION_KEY", "SIGNING_KEY", "AZURE_STORAGE_KEY", "AZURE_SAS", "STORAGE_CONNECTION_STRING", "CONN_STR", "AUTH",
    "BASIC_AUTH",
    "BEARER", "clientSecret", "apiKey", "KEY_PASSPHRASE", "TLS_CERT", "LICENSE_KEY", "SALT", "PIN",
    "GOOGLE_CREDENTIALS", "KEY", "DB_PW", "PGPASS", "HF_TOKEN_2",
    "SERVICE_ACCOUNT_KEY",
    "KERBEROS_PASSCODE", "MLFLOW_TRACKING_TOKEN", "OAUTH2", "REQUEST_SIGNATURE",
)  # fmt: skip
SECRET_VALUES = (
    "AKIAIOSFODNN7EXAMPLE", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", "sk-1234567890abcdef", "xoxb-1234-abcdef",
    "eyJhbGciOiJIUzI1NiJ9.e30.x", "-----BEGIN RSA PRIVATE KEY-----", "Bearer abc123", "postgresql://me:abc123@db/x",
    "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY1234", "redis://:abc@cache", "https://h/?sig=abc", "--password=abc",
    "postgresql://me:pa/pw@db", "-Ddb.password=abc", "Authorization: Basic abc", '{"password": "abc"}', "token=abc",
)  # fmt: skip
PLAIN = {
    "TOKENS_PER_BATCH": "4096", "PIN_MEMORY": "1", "SESSION_LENGTH_S": "30", "NUM_PASS": "2", "SALT_SEED": "7",
    "EPOCHS": "3", "MODE": "fast", "LAYERS": "hidden=64", "OMP_NUM_THREADS": "4",
    "PYTHONPATH": "/opt/code/library1/x:2/y",
    "TOKEN_FILE": "/run/token", "MAX_TOKENS": "512",
    "TOKENIZER": "bert-base", "MAX_TOKENIZED": "512", "KEYBOARD": "us", "SORT_KEY": "user_id", "COMPASS": "north",
    "N_PASSES": "3", "NUM_PASSES": "3000", "PASSES": "mem2reg,sroa", "MAX_TOKENS_": "4096", "NUM_TOKENS": "40960",
    "MAXTOKENS": "4096", "SORT_KEYS": "user_id,item_id", "HASH_KEYS": "C1,C2,C10", "KEYS": "item_id,cat_12",
    "MONKEY": "banana2", "BYPASS": "a1b2", "LOWPASS": "0.5hz", "ENCOMPASS": "v1beta1", "PASSTHROUGH": "abc123",
    "PADTOKEN": "[PAD]", "OLDPWD": "/home/x",
    "DATA": "s3://bucket/criteo/day_0.parquet", "AUTHOR": "anna", "CHECKPOINT": "model-2026-11-25-final-version-of-it",
}  # fmt: skip


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_variable_named_like_a_secret_is_treated_as_one(name: str) -> None:
    assert may_be_secret(name, "x")


@pytest.mark.parametrize(
    "name",
    [
        "API_KEYS", "APIKEYS", "OPENAI_API_KEYS", "ACCESS_KEYS", "AUTH_KEYS", "OPENAI_KEYS", "OPENAIKEY", "SSHPASS",
        "NGROK_AUTHTOKEN", "AUTHTOKEN", "DBPASS", "DBPASS_2", "DBPW", "MYSQLPWD", "SMTPPASS", "USERPASS", "GHTOKEN",
        "HFTOKEN", "hfTokens", "PASSES", "PATS", "JWTS", "AWSCREDS", "SENTRYDSN", "SLACKWEBHOOK", "WIFIPSK",
        "BASICAUTH",
    ],
)  # fmt: skip
def test_plural_or_joined_name_of_a_secret_is_one(name: str) -> None:
    assert may_be_secret(name, "Zq7xT9pLm2")
    assert "Zq7x" not in redacted(f"{name}=Zq7xT9pLm2 train")


@pytest.mark.parametrize("value", SECRET_VALUES)
def test_value_in_the_form_of_a_key_is_treated_as_a_secret(value: str) -> None:
    assert may_be_secret("SETTING", value)


@pytest.mark.parametrize("name", PLAIN)
def test_plain_setting_is_not_a_secret(name: str) -> None:
    assert not may_be_secret(name, PLAIN[name])


def test_no_key_of_our_own_records_and_tables_is_taken_for_a_secret() -> None:
    """Records printed as JSON or YAML pass the redactor, too."""
    import sizewright.spec as spec
    from sizewright.datasets.trials.trial import Trial
    from sizewright.spec._base import Record

    records = [each for each in vars(spec).values() if isinstance(each, type) and issubclass(each, Record)]
    names = {name for record in [*records, Trial] for name in record.model_fields}
    assert len(names) > 100
    assert [name for name in sorted(names) if redacted(f'"{name}": "abc"') != f'"{name}": "abc"'] == []

"""Payment providers that notify the application of docs/how-to/payment-callbacks.md.

Each signs with keys of its own, and sends every attempt with another time, signature and spelling:

    settings     those of the application that it notifies
    ledger       its name in the table of payments
    notify       returns a new attempt to say that an order has been paid
    is_content   tells whether it takes an answer for success
"""

import base64
import hmac
import json
import random
import time
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlencode

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from helpers.http_transcripts import blocks
from helpers.repository import ROOT, text_of

PAGE = ROOT / "docs" / "how-to" / "payment-callbacks.md"
JSON = {"Content-Type": "application/json"}


def application_of_page():
    """Return the source of the page's application: its first chain, without what tries it."""
    chain = [block.text for block in blocks(text_of(PAGE))[0] if block.language == "python"]
    return "\n\n".join(code for code in chain if "test_client" not in code)


class Notification(NamedTuple):
    path: str
    headers: dict
    body: bytes


def new_key():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return key, public.decode()


def sign(key, message):
    signature = key.sign(message.encode(), padding.PKCS1v15(), hashes.SHA256())
    return base64.b64encode(signature).decode()


def nonce():
    return f"{random.getrandbits(128):032x}"


class Alipay:
    name = ledger = "alipay"
    path = "/alipay/notify"

    def __init__(self):
        self._key, public = new_key()
        self.settings = {"ALIPAY_PUBLIC_KEY": public, "ALIPAY_APP_ID": "app-2021"}

    def notify(self, trade, number, cents, state="TRADE_SUCCESS", without="", **more):
        form = {
            "app_id": "app-2021",
            "charset": "utf-8",
            "notify_id": nonce(),
            "notify_time": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
            "out_trade_no": number,
            "passback_params": "",
            "subject": "两个杯子 & a spoon",
            "total_amount": f"{cents / 100:.2f}",
            "trade_no": trade,
            "trade_status": state,
            **more,
        }
        form.pop(without, None)
        message = "&".join(f"{name}={form[name]}" for name in sorted(form) if form[name])
        form |= {"sign": sign(self._key, message), "sign_type": "RSA2"}
        fields = random.sample(list(form.items()), len(form))
        headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        return Notification(self.path, headers, urlencode(fields).encode())

    @staticmethod
    def is_content(status, body):
        return (status, body) == (200, b"success")


class WechatXml:
    name = ledger = "wechat"
    path = "/wechat/notify"
    key = "192006250b4c09247ec02edce69f6a2d"

    def __init__(self):
        self.settings = {"WECHAT_API_KEY": self.key, "WECHAT_MCH_ID": "mch-10000100"}

    def notify(self, trade, number, cents, without="", **more):
        fields = {
            "attach": "",
            "mch_id": "mch-10000100",
            "nonce_str": nonce(),
            "out_trade_no": number,
            "result_code": "SUCCESS",
            "return_code": "SUCCESS",
            "total_fee": str(cents),
            "transaction_id": trade,
            **more,
        }
        fields.pop(without, None)
        signed = "&".join(f"{name}={fields[name]}" for name in sorted(fields) if fields[name])
        message = f"{signed}&key={self.key}"
        fields["sign"] = hmac.digest(self.key.encode(), message.encode(), "sha256").hex().upper()
        blank = random.choice(["", "\n", "\r\n  ", "\t"])
        lines = [
            f"{blank}<{name}>{random.choice(['{}', '<![CDATA[{}]]>']).format(value)}</{name}>"
            for name, value in random.sample(list(fields.items()), len(fields))
        ]
        xml = f"<xml>{''.join(lines)}{blank}</xml>"
        return Notification(self.path, {"Content-Type": "text/xml"}, xml.encode())

    @staticmethod
    def is_content(status, body):
        return status == 200 and b"<return_code><![CDATA[SUCCESS]]></return_code>" in body


class WechatJson:
    name = "wechat3"
    ledger = "wechat"
    path = "/wechat3/notify"
    secret = "an APIv3 key of thirty-two bytes"

    def __init__(self):
        self._key, public = new_key()
        self.settings = {"WECHAT_PUBLIC_KEY": public, "WECHAT_API3_KEY": self.secret}

    def notify(self, trade, number, cents, *, at=None, secret=None, sealing=None, **more):
        """Return an attempt; `sealing` replaces fields around the event, `more` those in it."""
        opened = {
            "transaction_id": trade,
            "out_trade_no": number,
            "trade_state": "SUCCESS",
            "amount": {"total": cents, "currency": "CNY"},
            **more,
        }
        salt = nonce()[:12]
        cipher = AESGCM((secret or self.secret).encode())
        sealed = cipher.encrypt(salt.encode(), json.dumps(opened).encode(), b"transaction")
        resource = {
            "algorithm": "AEAD_AES_256_GCM",
            "ciphertext": base64.b64encode(sealed).decode(),
            "associated_data": "transaction",
            "nonce": salt,
            **(sealing or {}),
        }
        event = {"id": nonce(), "event_type": "TRANSACTION.SUCCESS", "resource": resource}
        body = json.dumps(event)
        moment, once = str(int(at or time.time())), nonce()
        headers = {
            "Wechatpay-Timestamp": moment,
            "Wechatpay-Nonce": once,
            "Wechatpay-Signature": sign(self._key, f"{moment}\n{once}\n{body}\n"),
            "Wechatpay-Serial": "1",
        }
        return Notification(self.path, {**JSON, **headers}, body.encode())

    @staticmethod
    def is_content(status, body):
        return status in (200, 204)


class Stripe:
    name = ledger = "stripe"
    path = "/stripe/notify"
    secret = "whsec_of_the_tests"

    def __init__(self):
        self.settings = {"STRIPE_SECRET": self.secret}

    def notify(self, trade, number, cents, *, event=None, at=None, said=None, **more):
        """Return an attempt; `more` replaces fields of its payment, `said` the whole event."""
        intent = {"id": trade, "amount_received": cents, "currency": "cny"}
        intent |= {"metadata": {"order": number}, **more}
        usual = {
            "id": event or f"evt_{trade}",
            "type": "payment_intent.succeeded",
            "pending_webhooks": random.randrange(99),
            "data": {"object": intent},
        }
        body = json.dumps(usual if said is None else said).encode()
        moment = str(int(at or time.time()))
        message = moment.encode() + b"." + body
        right = hmac.digest(self.secret.encode(), message, "sha256").hex()
        headers = {"Stripe-Signature": f"t={moment},v1={'0' * 64},v1={right},v0={nonce()}"}
        return Notification(self.path, {**JSON, **headers}, body)

    @staticmethod
    def is_content(status, body):
        return 200 <= status < 300


PROVIDERS = {each.name: each for each in (Alipay(), WechatXml(), WechatJson(), Stripe())}
SETTINGS = {name: value for each in PROVIDERS.values() for name, value in each.settings.items()}
